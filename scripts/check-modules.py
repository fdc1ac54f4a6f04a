#!/usr/bin/env -S python3 -B
"""check-modules.py [--print]: checks the dependencies between modules of overlay against the arrows of
ARCHITECTURE.md. --print shows the existing arrows. Tests are not checked: files called tests.rs or in
a folder tests/, and items behind #[cfg(test)]."""

import re
import sys
from collections import Counter
from typing import Iterator, List, Tuple

from sources import code, fail, files, line_of, read

# The modules of overlay that each module may name, from the ground up.
MODULES = {
    **dict.fromkeys(("counters", "arena", "wire"), ""),
    "identity": "wire",
    "monitor": "counters wire",
    "link": "counters arena wire identity monitor",
    "route": "wire identity link",
    "handshake": "arena wire identity link",
    "session": "wire identity",
    "trunk": "wire link session",
    "node": "counters arena wire identity monitor link route handshake session trunk",
}
# The first word of an item; a field or a variant has none, and ends with a comma.
ITEM = re.compile(
    r"\s*(#\[[^]]*\]\s*)*(pub(\([^)]*\))?\s+)?(async|const|enum|extern|fn|impl|let|mod|static|struct|trait|type|union|unsafe|use|macro_rules)\b"
)
# Each of these would hide an arrow from this check.
HIDING = {
    r"(?<!\w)(crate|super)\s+as\b": "another name for a module: write its path",
    r"\binclude!": "`include!`: make the file a module",
}


def untested(text: str) -> str:
    """Without the items behind #[cfg(test)]."""
    while mark := re.search(r"#\[cfg\(test\)\]", text):
        depth, end = 0, len(text)
        ends = "};" if ITEM.match(text, mark.end()) else "};,"
        for bracket in re.compile(r"[][(){};,]").finditer(text, mark.end()):
            depth += (bracket[0] in "[({") - (bracket[0] in "])}")
            if depth < 0 or depth == 0 and bracket[0] in ends:
                end = bracket.end()
                break
        text = text[: mark.start()] + "\n" * text.count("\n", mark.start(), end) + text[end:]
    return text


def first_names(path: str) -> List[str]:
    """The first name of a path, or of each member of a group of paths."""
    if not path.startswith("{"):
        return re.match(r"\w*|\*", path)[0].split() or ["*"]
    depth, flat = 0, ""
    for character in path:
        depth += (character == "{") - (character == "}")
        flat += character if depth == 1 else ""
        if not depth:
            break
    return re.findall(r"[{,]\s*(\w+|\*)", flat)


def paths(module: str, text: str) -> Iterator[Tuple[int, str]]:
    """Offset and first name of each path that begins at overlay's root, in a file's code."""
    for found in re.finditer(r"(?<!\w)(?:crate\s*::|(?:super\s*::\s*)+)\s*", text):
        if found[0].startswith("crate") or found[0].count("super") >= module.count("/") + 1:
            for to in first_names(text[found.end() :]):
                yield found.start(), to


arrows: Counter = Counter()
for name in files("crates/overlay/src/*.rs"):
    if name.endswith(("/lib.rs", "/tests.rs")) or "/tests/" in name:
        continue
    module = name.removeprefix("crates/overlay/src/").removesuffix(".rs").removesuffix("/mod")
    source = module.split("/")[0]
    if source not in MODULES:
        fail(name, f"no arrows for overlay::{source}: add it to scripts/check-modules.py and ARCHITECTURE.md")
        continue
    text = re.sub(r"pub\(in [\w:]*\)", lambda gap: "pub" + " " * (len(gap[0]) - 3), untested(code(read(name))))
    for pattern, why in HIDING.items():
        for found in re.finditer(pattern, text):
            fail(f"{name}:{line_of(text, found.start())}", why)
    published = [use.span() for use in re.finditer(r"\bpub(\([^)]*\))?\s+use\b[^;]*;", text)]
    for begin, to in paths(module, text):
        at = f"{name}:{line_of(text, begin)}"
        if to == source:
            continue
        arrows[f"overlay::{source} -> {to}"] += 1
        if to not in MODULES[source].split():
            fail(at, f"overlay::{source} must not use overlay::{to} (allowed: {MODULES[source] or 'none'}): move the definition down")
        if any(first < begin < last for first, last in published):
            fail(at, f"overlay::{source} must not re-export items of overlay::{to}: users name overlay::{to}")
for arrow, count in sorted(arrows.items()) if "--print" in sys.argv else ():
    print(f"{arrow} ({count})")
sys.exit(fail.status)
