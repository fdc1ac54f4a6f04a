#!/usr/bin/env -S python3 -B
"""ARCHITECTURE.md lists exactly the files, tests included, that have unsafe code or mention the lint
`unsafe_code`, and every crate denies that lint."""

import re
import sys
import tomllib

from sources import code, fail, files, line_of, read

TABLE = read("ARCHITECTURE.md").partition("\n## Unsafe code\n")[2].partition("\n## ")[0]
listed = set(re.findall(r"(?m)^\| `([^`]*\.rs)`", TABLE))
there = {}
for name in files("*.rs"):
    text = read(name)
    if "unsafe" in text and (found := re.search(r"\bunsafe(_code)?\b", code(text))):
        there[name] = line_of(text, found.start())
for name in there.keys() - listed:
    fail(f"{name}:{there[name]}", "unsafe code, or an attribute about it: do without, or add the file to ARCHITECTURE.md's list with its reason")
for name in listed - there.keys():
    fail(f"ARCHITECTURE.md: {name}", "listed as unsafe, but has no unsafe code: delete its line")

for name in files("Cargo.toml", "*/Cargo.toml"):
    manifest = tomllib.loads(read(name))
    lints = manifest["workspace"].get("lints", {}) if name == "Cargo.toml" else manifest.get("lints", {})
    if not lints.get("workspace") and lints.get("rust", {}).get("unsafe_code") not in ("deny", "forbid"):
        fail(name, 'the lint unsafe_code is not denied: add `[lints]` with `workspace = true`')
sys.exit(fail.status)
