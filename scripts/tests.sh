#!/usr/bin/env bash
# Every test of the workspace. Those of the daemon and the lab mostly wait for a clock and leave
# the processors free; they run one program after the other, since some look at delays. Meanwhile
# the tests run that calculate, and on processors that are idle lab and daemon are built optimised
# for the steps that come, and the tests run that calculate for minutes. Arguments go to cargo.
set -uo pipefail
cd "$(dirname "$0")/.."

# By their names, which no other test's has in it.
slow=(every_experiment shards_processors_and_interruptions_leave_no_trace)

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

calculates() {
    local failed=0
    nice -n 19 cargo test "$@" --workspace --no-fail-fast --lib --bins --examples || failed=1
    nice -n 19 cargo test "$@" --workspace --doc || failed=1
    return "$failed"
}

# Were a slow test renamed, it would be among the others, and here would be none.
beside() {
    chrt --idle 0 cargo build --quiet --release "$@" -p trunkline-lab -p trunkline &&
        chrt --idle 0 cargo test "$@" --workspace --test it -- "${slow[@]}"
    local status=$? ran
    ran=$(grep -c '^test .* \.\.\. ok$' "$logs/beside")
    if [ "$status" = 0 ] && [ "$ran" != "${#slow[@]}" ]; then
        echo "scripts/tests.sh: $ran of ${#slow[@]} slow tests ran: is one called otherwise now?"
        status=1
    fi
    return "$status"
}

calculates "$@" >"$logs/calculates" 2>&1 &
calculating=$!
beside "$@" >"$logs/beside" 2>&1 &
building=$!
failed=0
cargo test "$@" --workspace --no-fail-fast --test it -- "${slow[@]/#/--skip=}" || failed=1
wait "$calculating" || failed=1
wait "$building" || failed=1
cat "$logs/calculates" "$logs/beside"
exit "$failed"
