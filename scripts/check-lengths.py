#!/usr/bin/env -S python3 -B
"""No Rust file has more than 600 lines of code, and README.md at most 8 KB. Blank lines and comments
don't count. (clippy checks the length of functions: see clippy.toml.)"""

import sys
from pathlib import Path

from sources import fail, files, only, tokens

size = Path("README.md").stat().st_size
if size > 8192:
    fail("README.md", f"{size} bytes, more than 8192: move what isn't for a first reader to docs/")

for name in files("*.rs"):
    raw = Path(name).read_bytes()
    if b"\r" in raw:
        line = raw[: raw.index(b"\r")].count(b"\n") + 1
        fail(f"{name}:{line}", "a carriage return: end lines by a line feed alone")
        raw = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if raw.count(b"\n") <= 600:
        continue
    text, at, spans = raw.decode(), 0, []
    for kind, begin, end in tokens(text):
        if kind != '"':
            spans.append((at, begin))
            at = end
    lines = [number for number, line in enumerate(only(text, spans + [(at, len(text))]).split("\n"), 1) if line.strip()]
    if len(lines) > 600:
        fail(f"{name}:{lines[600]}", f"{len(lines)} lines of code, more than 600: split the file by concern")
sys.exit(fail.status)
