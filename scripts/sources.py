"""Shared by the rule scripts: the files of the repository, and the comments in them."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Iterable, Iterator, List, Tuple

os.chdir(Path(__file__).resolve().parent.parent)

Span = Tuple[int, int]

# A string, a character or the beginning of a comment in Rust and C. A lifetime is none of them.
_TOKEN = re.compile(
    r"""//[^\n]*|/\*|\bb?c?r(\#*)".*?"\1|"(?:\\.|[^"\\])*"|'(?:\\'|\\[^'\n]+|[^\\'\n])'""", re.S
)
_EDGE = re.compile(r"/\*|\*/")
# A string or a comment in shell, Python and TOML.
_HASHED = re.compile(
    r"""\"{3}.*?\"{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|(?<![^\s;])\#[^\n]*""", re.S
)


def fail(where: str, why: str) -> None:
    """Prints an error; the script then ends with status 1."""
    print(f"error: {where}: {why}")
    fail.status = 1


fail.status = 0


def files(*patterns: str) -> List[str]:
    """Files of git's index and new ones that git doesn't ignore, by git's path patterns."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard", "--", *patterns], capture_output=True, text=True
    )
    if listed.returncode or not listed.stdout:
        said = listed.stderr.strip() or f"it knows none of {' '.join(patterns)}"
        sys.exit(f"error: git can't list the files: run this in a clone of the repository: {said}")
    return [name for name in sorted(set(listed.stdout.split("\0"))) if name and os.path.isfile(name)]


def read(name: str) -> str:
    return Path(name).read_text(encoding="utf-8")


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def tokens(text: str) -> Iterator[Tuple[str, int, int]]:
    """Comments and strings of Rust or C: "//", "/*" or a quotation mark, begin and end."""
    at = 0
    while found := _TOKEN.search(text, at):
        begin, at = found.span()
        kind = text[begin : begin + 2]
        if kind == "/*":
            depth = 1
            while depth and (mark := _EDGE.search(text, at)):
                depth += 1 if mark[0] == "/*" else -1
                at = mark.end()
            at = at if not depth else len(text)
        yield (kind if kind in ("//", "/*") else '"'), begin, at


def only(text: str, spans: Iterable[Span]) -> str:
    """The text with blanks in place of all that is outside of the spans; lines stay where they are."""
    kept, at = [], 0
    for begin, end in spans:
        kept += [re.sub(r"[^\n]+", lambda gap: " " * len(gap[0]), text[at:begin]), text[begin:end]]
        at = end
    return "".join(kept) + "\n" * text.count("\n", at)


def code(text: str) -> str:
    """Rust or C without comments and without what its strings contain."""
    at, spans = 0, []
    for _, begin, end in tokens(text):
        spans.append((at, begin))
        at = end
    return only(text, spans + [(at, len(text))])


def prose(name: str, text: str) -> str:
    """A document, or the comments of a source file (of Python also what stands in triple quotes)."""
    if name.endswith(".md"):
        return text
    if name.endswith((".rs", ".c", ".h")):
        return only(text, [(begin, end) for kind, begin, end in tokens(text) if kind != '"'])
    return only(text, [found.span() for found in _HASHED.finditer(text) if found[0].startswith(("#", '"""'))])
