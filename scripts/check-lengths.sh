#!/usr/bin/env bash
# Checks that no Rust file has more than 600 lines of code. Blank lines and comments don't
# count. (clippy checks the length of functions: see clippy.toml.)
set -euo pipefail
cd "$(dirname "$0")/.."

find crates fuzz/fuzz_targets -name '*.rs' -print0 | sort -z | xargs -0 awk '
    FNR == 1 { code = 0 }
    !/^[ \t]*(\/\/.*)?$/ { if (++code == 601) { print "error: " FILENAME ": more than 600 lines of code: split it by concern"; bad = 1 } }
    END { exit bad }'
