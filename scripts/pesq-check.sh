#!/usr/bin/env bash
# Compares our PESQ with the ITU's code, which the Python package `pesq` wraps, on
# 27 recordings, with and without filter, at four loss rates.
#
#   scripts/pesq-check.sh [FOLDER]          (default: a temporary one)
#
# Prints the differences; exit status 1 if any pair differs by more than 0.01.
# Needs: python3 with venv, a C compiler, and PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."
work=${1:-}
if [ -z "$work" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi

if ! "$work/venv/bin/python" -c 'import pesq' 2>/dev/null; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet numpy pesq==0.0.4
fi
cargo run --quiet --release -p trunkline-lab --example pesq "$work/pairs" \
    speech/librispeech/*.wav speech/*.wav
"$work/venv/bin/python" - "$work/pairs" <<'PYTHON'
import csv, math, pathlib, sys, wave
import numpy
from pesq import pesq

folder = pathlib.Path(sys.argv[1])


def load(path):
    with wave.open(str(path)) as w:
        return numpy.frombuffer(w.readframes(w.getnframes()), "<i2")


def raw(lqo):
    """Inverse of P.862.1: the wrapper returns MOS-LQO."""
    return (4.6607 - math.log(4.0 / (lqo - 0.999) - 1.0)) / 1.4945


off = {}
for row in csv.DictReader(open(folder / "scores.csv")):
    pair = [load(folder / f"{row['name']}.{kind}.wav") for kind in ("ref", "deg")]
    difference = float(row["raw"]) - raw(pesq(8000, *pair, "nb"))
    kind = row["name"].rsplit("-", 2)[1:]
    off.setdefault(f"filter {kind[0]}, {kind[1]} % lost", []).append((difference, row["name"]))
worst = (0.0, "")
for kind, differences in off.items():
    values = [d for d, _ in differences]
    largest = max(differences, key=lambda d: abs(d[0]))
    worst = max(worst, (abs(largest[0]), largest[1]))
    mean = sum(values) / len(values)
    print(f"{kind}: {len(values)} pairs, mean {mean:+.4f}, furthest {largest[0]:+.4f}")
print(f"furthest of all: {worst[0]:.4f} ({worst[1]})")
sys.exit(worst[0] > 0.01)
PYTHON
