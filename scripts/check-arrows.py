#!/usr/bin/env -S python3 -B
"""check-arrows.py [--print]: checks the dependencies between crates against the arrows of
ARCHITECTURE.md, and that no sans-IO crate depends on the operating system. --print shows the existing
arrows. Dev-dependencies are not checked: a test may drive a sans-IO crate with anything."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import List

from sources import code, fail, files, line_of, read

# The trunkline crates that each crate may name in its Cargo.toml.
CRATES = {
    "base": "",
    "overlay": "base rate",
    **dict.fromkeys(("net", "rate", "media", "sip"), "base"),
    "gateway": "base overlay sip",
    "client": "base overlay",
    "trunkline": "base net overlay media sip gateway client",
    "sim": "base net overlay rate media",
    "lab": "base net overlay rate sim media client",
    "fuzz": "base overlay rate media sip gateway",
}
SANS_IO = "base net overlay rate media sip gateway".split()
# Anything here means sockets, threads, clocks or the system's randomness.
IO = set("async-std getrandom libc mio nix polling rustix smol socket2 tokio windows-sys".split())
# Crates whose own dependencies are ignored in the sans-IO crates, since no feature turns them off.
# ring has a generator that reads the system's entropy through getrandom, which depends on libc; the
# rest of ring only computes. clippy.toml bans the generator and all functions that take it.
LOOKED_PAST = {"ring"}
# Each of these would hide an arrow from this check.
HIDING = {
    r"\bpub(\([^)]*\))?\s+use\s+(::)?\{?\s*trunkline_\w+(\s+as\s+\w+)?\s*(;|,|\}|::\s*(\*|\{\s*self\b))": "a crate is re-exported whole: a crate that uses it needs its own arrow",
    r"\bextern\s+crate\b": "`extern crate`: name the crate in Cargo.toml, and in paths",
    r"#!?\[\s*(cfg_attr\([^]]*)?\bpath\s*=": "`#[path]`: put the file where its module is",
}
# Compiles the other binary's printing, too.
SHARES_A_FILE = "crates/lab/src/main.rs"


def cargo(*arguments: str) -> str:
    said = subprocess.run(["cargo", *arguments], capture_output=True, text=True)
    if said.returncode:
        sys.exit(f"error: cargo {arguments[0]} failed: correct what it says: {said.stderr.strip()}")
    return said.stdout


def reached(package: str) -> List[str]:
    """Crates that a package depends on, except what only those of LOOKED_PAST need."""
    tree = ("tree", "--quiet", "--edges=normal,build", "--prefix=depth", "--no-dedupe", "--format= {p}")
    past, names = None, []
    for depth, name in re.findall(r"(?m)^(\d+) (\S+)", cargo(*tree, "-p", package)):
        if past is None or int(depth) <= past:
            past = int(depth) if name in LOOKED_PAST else None
            names.append(name)
    return names


packages = json.loads(cargo("metadata", "--no-deps", "--format-version=1"))["packages"]
for package in packages:
    name, crate = package["name"], Path(package["manifest_path"]).parent.name
    if crate not in CRATES:
        fail(f"crates/{crate}/Cargo.toml", "no arrows for it: add it to scripts/check-arrows.py and ARCHITECTURE.md")
        continue
    for used in {d["name"] for d in package["dependencies"] if d["kind"] != "dev"}:
        to = used.removeprefix("trunkline-")
        if "--print" in sys.argv and to != used:
            print(f"{crate} -> {to}")
        if to != used and to not in CRATES[crate].split():
            fail(f"crates/{crate}/Cargo.toml", f"{name} must not depend on {used} (allowed: {CRATES[crate] or 'none'}): move the code")

with ThreadPoolExecutor() as pool:
    for crate, names in zip(SANS_IO, pool.map(lambda crate: reached(f"trunkline-{crate}"), SANS_IO)):
        for banned in IO & set(names):
            fail(f"crates/{crate}/Cargo.toml", f"sans-IO, but reaches {banned}: see `cargo tree -p trunkline-{crate} -e normal -i {banned}`")

for name in files("crates/*/src/*.rs"):
    text = read(name)
    for pattern, why in HIDING.items():
        # Only a file that may have it is worth the reading of its comments and strings.
        for found in re.finditer(pattern, code(text)) if re.search(pattern, text) else ():
            if name != SHARES_A_FILE or "path" not in found[0]:
                fail(f"{name}:{line_of(text, found.start())}", why)
sys.exit(fail.status)
