#!/usr/bin/env -S python3 -B
"""Names and phrases that are not used here: scripts/words.txt lists them with their replacements."""

import re
import sys

from sources import fail, files, line_of, prose, read

WORDS = "scripts/words.txt"
CODE = files("crates", "fuzz/src", "fuzz/fuzz_targets", "include", "examples", ":!*.md")
# The changelog lists the old names.
PROSE = files(
    *("*.md", "*.rs", "*.c", "*.h", "*.py", "*.toml", "*.sh", "Makefile", "tests/cases/run"),
    *(":!CHANGELOG.md", ":!fuzz/seeds"),
)


def add_row(line: str) -> None:
    where, word, instead = line.split("\t")
    if where not in rows:
        raise ValueError(f"{where} is neither code nor prose")
    if where == "prose" and word != word.lower():
        raise ValueError(f"{word} has a capital letter, and prose is searched in lower case")
    # A phrase may be broken over lines of a comment.
    pattern = word if where == "code" else word.replace(" ", r"[\s/!*#>]+")
    rows[where].append((re.compile(rf"\b(?:{pattern})\b", re.I if where == "prose" else 0), word, instead))


rows = {"code": [], "prose": []}
for number, line in enumerate(read(WORDS).splitlines(), 1):
    if line and not line.startswith("#"):
        try:
            add_row(line)
        except (ValueError, re.error) as error:
            fail(f"{WORDS}:{number}", f"{error}: write code or prose, a regular expression and a replacement, by tabs")

texts = {}
for name in {*CODE, *PROSE}:
    try:
        texts[name] = read(name)
    except UnicodeDecodeError:
        pass  # a recording
for names, kind in ((CODE, "code"), (PROSE, "prose")):
    # One search for all words at once: most files have none of them.
    words = "|".join(pattern.pattern.removeprefix(r"\b").removesuffix(r"\b") for pattern, _, _ in rows[kind])
    every = re.compile(rf"\b(?:{words})\b")
    for name in names:
        text = texts.get(name, "")
        # Faster than a search that ignores the case.
        if not every.search(text if kind == "code" else text.lower()):
            continue
        if kind == "prose":
            text = prose(name, text)
        for pattern, word, instead in rows[kind]:
            for found in pattern.finditer(text):
                fail(f"{name}:{line_of(text, found.start())}", f"'{word}': write {instead}")
sys.exit(fail.status)
