#!/usr/bin/env bash
# Checks that no Rust file has more than 600 lines of code, and README.md at most 8 KB. Blank
# lines and comments don't count. (clippy checks the length of functions: see clippy.toml.)
set -euo pipefail
cd "$(dirname "$0")/.."

bytes=$(wc -c <README.md)
if [ "$bytes" -gt 8192 ]; then
    echo "error: README.md: $bytes bytes, more than 8192: move what isn't for a first reader to docs/" >&2
    exit 1
fi

find crates fuzz/fuzz_targets -name '*.rs' -print0 | sort -z | xargs -0 awk '
    FNR == 1 { code = 0 }
    !/^[ \t]*(\/\/.*)?$/ { if (++code == 601) { print "error: " FILENAME ": more than 600 lines of code: split it by concern"; bad = 1 } }
    END { exit bad }'
