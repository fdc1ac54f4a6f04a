#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET...]: fuzzes each target (all, unless named) for
# SECONDS, two at a time (FUZZ_JOBS), starting from fuzz/seeds/TARGET. New
# inputs stay in fuzz/corpus. FUZZ_SEED=N mutates in the same order each time.
#
# No sanitizer: the code under test has no `unsafe`, and without one cargo-fuzz
# needs no nightly compiler. FUZZ_SANITIZER=address RUSTUP_TOOLCHAIN=nightly
# turns one on.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds="$1"; shift
cargo fuzz --version >/dev/null 2>&1 || {
    echo "skipped: cargo-fuzz: not installed; run make setup"
    exit 77
}
# Link-time optimisation would take minutes here, and find nothing.
export CARGO_PROFILE_RELEASE_LTO=off
fuzz() { cargo fuzz "$1" --features libfuzzer --sanitizer "${FUZZ_SANITIZER:-none}" "${@:2}"; }

targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(cargo fuzz list)
[ ${#targets[@]} -gt 0 ] || { echo "error: fuzz/Cargo.toml lists no fuzz target" >&2; exit 1; }
for target in "${targets[@]}"; do
    [ -n "$(ls -A "fuzz/seeds/$target" 2>/dev/null)" ] || {
        echo "error: fuzz/seeds/$target has no seed: add at least one valid input" >&2
        exit 1
    }
done

# A node has a few large tables. By default glibc maps and unmaps them for every input,
# which costs more than the input itself.
export MALLOC_MMAP_THRESHOLD_=$((64 << 20)) MALLOC_TRIM_THRESHOLD_=$((256 << 20))

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

run() {
    local target="$1" log="$logs/$1" corpus="fuzz/corpus/$1"
    mkdir -p "$corpus"
    # A slow input is a bug too: 5 s for one input, 512 MB for the process.
    if ! fuzz run "$target" "$corpus" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -seed="${FUZZ_SEED:-0}" -timeout=5 -rss_limit_mb=512 \
        >"$log" 2>&1; then
        # Skip the lines on the loaded corpus; begin with the error.
        sed -n '/panicked at\|ERROR: \|error: /,$p' "$log" | head -n 60 >&2
        echo "error: fuzz target $target failed; fuzz/artifacts/$target holds the input" >&2
        return 1
    fi
    # Parses `#1234 DONE cov: 56 ft: 78 corp: 9/10b …` and `Done 1234 runs in 5 second(s)`.
    local runs cover
    runs=$(sed -n 's/^Done //p' "$log")
    cover=$(sed -n 's/.*DONE *\(cov: [0-9]*\).*\(corp: [0-9]*\).*/\1, \2/p' "$log")
    echo "    $target: $runs, $cover"
}

fuzz build
# A failure is recorded in a file: if two jobs end at once, `wait -n` may report only one.
for target in "${targets[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "${FUZZ_JOBS:-2}" ]; do wait -n || true; done
    { run "$target" || touch "$logs/failed"; } &
done
wait
[ ! -e "$logs/failed" ]
