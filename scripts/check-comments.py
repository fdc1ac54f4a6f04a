#!/usr/bin/env -S python3 -B
"""Every doc comment says something: none has three words or fewer, and no paragraph of a comment
begins with a headless "who", "whose" or "what". Comments in tests and in macros count too, and so do,
for the second rule, those of scripts, of manifests and in Python."""

import re
import sys
from typing import Iterator, Tuple

from sources import fail, files, line_of, prose, read, tokens

HEADLESS = re.compile(r"[*_\s]*(who|whom|whose|what)\b", re.I)
BEGIN = 'comment begins with a headless clause: begin with the subject ("The caller", not "Who calls")'
ATTRIBUTE = re.compile(r'(?<!\w)doc\s*=\s*$')


def comments(text: str) -> Iterator[Tuple[int, str, str]]:
    """Offset, kind ("//", "///", "/**", …) and text of each comment; lines that follow each other are one."""
    kind, begun, lines, ended = "", 0, [], 0
    for token, begin, end in tokens(text):
        if token == '"':
            # The attribute that `///` stands for.
            if ATTRIBUTE.search(text, max(0, begin - 20), begin):
                yield begin, "#[doc]", text[begin:end].strip('r#"').replace("\\n", "\n")
            continue
        marker, body = re.match(r"(///(?!/)|//!|/\*\*(?![*/])|/\*!|//+|/\*+)(.*)", text[begin:end], re.S).groups()
        if token == "/*":
            body = re.sub(r"(?m)^\s*\*(?!\*)", "", body.removesuffix("*/"))
        joined = token == "//" and marker == kind and not text[ended:begin].strip() and text.count("\n", ended, begin) == 1
        if not joined and lines:
            yield begun, kind, "\n".join(lines)
        if not joined:
            kind, begun, lines = marker, begin, []
        lines.append(body)
        # A comment that trails a line of code is not continued by the next line.
        if text[text.rfind("\n", 0, begin) + 1 : begin].strip():
            yield begun, kind, body
            kind, lines = "", []
        ended = end
    if lines:
        yield begun, kind, "\n".join(lines)


for name in files("*.rs", "*.c", "*.h"):
    text = read(name)
    for begin, kind, said in comments(text):
        at = f"{name}:{line_of(text, begin)}"
        words = [word for word in said.split() if re.search(r"\w", word)]
        if kind in ("///", "//!", "/**", "/*!", "#[doc]") and len(words) <= 3:
            fail(at, f"doc comment of {len(words)} words: say what the name does not (unit, range, meaning, source), or delete it")
        if any(HEADLESS.match(paragraph) for paragraph in re.split(r"\n\s*\n", said)):
            fail(at, BEGIN)

for name in files("*.py", "*.sh", "*.toml", "Makefile", "tests/cases/run"):
    text = read(name)
    begins = True
    for number, (line, said) in enumerate(zip(text.split("\n"), prose(name, text).split("\n")), 1):
        body = said.strip().strip("#\"").strip()
        # A comment that trails a line of code is one of its own.
        trails = bool(line[: len(said) - len(said.lstrip())].strip())
        if (begins or trails) and HEADLESS.match(body):
            fail(f"{name}:{number}", BEGIN)
        begins = trails or not body
sys.exit(fail.status)
