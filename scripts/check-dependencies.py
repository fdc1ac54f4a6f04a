#!/usr/bin/env -S python3 -B
"""Every direct dependency has its line in the table of ARCHITECTURE.md, with the reason why it is
there; and the table names nothing that is not one. Cargo reads the manifests."""

import json
import re
import subprocess
import sys
from pathlib import Path

from sources import fail, line_of, read

used = {}
said = subprocess.run(
    ["cargo", "metadata", "--no-deps", "--format-version=1", "--offline"],
    capture_output=True,
    text=True,
)
if said.returncode:
    sys.exit(f"error: cargo can't read a manifest: correct it: {said.stderr.strip()}")
for package in json.loads(said.stdout)["packages"]:
    own = str(Path(package["manifest_path"]).relative_to(Path.cwd()))
    for dependency in package["dependencies"]:
        # A crate of this repository needs no reason; check-arrows.py knows those.
        path = dependency.get("path")
        if not (path and Path(path).parent == Path.cwd() / "crates"):
            used.setdefault(dependency["name"], (own, dependency["rename"]))

listed = {}
table = read("ARCHITECTURE.md").partition("\n## Dependencies\n")[2].partition("\nConsidered and rejected")[0]
for row in re.findall(r"(?m)^\|.*\|$", table)[2:]:
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    names = re.findall(r"`([^`]+)`", cells[1])
    if len(cells) != 3 or not names or not re.search(r"\w", cells[2]):
        fail("ARCHITECTURE.md", f"the line `{row}` needs three cells: crates, dependencies in backticks, why they are there")
    for name in names:
        listed[name] = row

for name in sorted(used.keys() - listed.keys()):
    manifest, rename = used[name]
    text = read(manifest)
    where = f"{manifest}:{line_of(text, text.find(name if name in text else rename or name))}"
    fail(where, f"`{name}` has no line in ARCHITECTURE.md's table of dependencies: add why it is there")
for name in sorted(listed.keys() - used.keys()):
    fail("ARCHITECTURE.md", f"`{name}` is in the table of dependencies, but no Cargo.toml has it: delete it there")
sys.exit(fail.status)
