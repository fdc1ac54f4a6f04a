#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET...]: fuzzes each target (all, unless named) for
# SECONDS, starting from fuzz/seeds/TARGET. New inputs stay in fuzz/corpus.
#
# No sanitizer: the code under test has no `unsafe`, and without one cargo-fuzz
# needs no nightly compiler. FUZZ_SANITIZER=address RUSTUP_TOOLCHAIN=nightly
# turns one on.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds="$1"; shift
cargo fuzz --version >/dev/null 2>&1 || {
    echo "skipped: cargo-fuzz: not installed; run scripts/setup.sh"
    exit 77
}
fuzz() { cargo fuzz "$1" --sanitizer "${FUZZ_SANITIZER:-none}" "${@:2}"; }

targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(cargo fuzz list)
[ ${#targets[@]} -gt 0 ] || { echo "error: fuzz/Cargo.toml lists no fuzz target" >&2; exit 1; }

fuzz build
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for target in "${targets[@]}"; do
    seeds="fuzz/seeds/$target" corpus="fuzz/corpus/$target"
    [ -n "$(ls -A "$seeds" 2>/dev/null)" ] || {
        echo "error: $seeds has no seed: add at least one valid input" >&2
        exit 1
    }
    mkdir -p "$corpus"
    # A slow input is a bug too: 5 s for one input, 512 MB for the process.
    if ! fuzz run "$target" "$corpus" "$seeds" -- \
        -max_total_time="$seconds" -timeout=5 -rss_limit_mb=512 >"$log" 2>&1; then
        # Skip the corpus that was loaded; begin with what went wrong.
        sed -n '/panicked at\|ERROR: \|error: /,$p' "$log" | head -n 60
        echo "error: fuzz target $target failed; fuzz/artifacts/$target holds the input" >&2
        exit 1
    fi
    echo "    $target: $(sed -n 's/^Done //p' "$log")"
done
