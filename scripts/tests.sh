#!/usr/bin/env bash
# Every test of the workspace. Most of them wait for a clock and leave the processors free;
# meanwhile, on processors that are idle, lab and daemon are built optimised for the steps that come,
# and the tests run that calculate for minutes and heed no clock. Arguments go to cargo.
set -uo pipefail
cd "$(dirname "$0")/.."

# By their names, which no other test's has in it.
slow=(every_experiment shards_processors_and_interruptions_leave_no_trace)

said=$(mktemp)
trap 'rm -f "$said"' EXIT
{
    chrt --idle 0 cargo build --quiet --release "$@" -p trunkline-lab -p trunkline &&
        chrt --idle 0 cargo test "$@" --workspace --test runs --test snapshots -- "${slow[@]}"
} >"$said" 2>&1 &
beside=$!
cargo test "$@" --workspace -- "${slow[@]/#/--skip=}"
status=$?
wait "$beside"
slow_status=$?
cat "$said"
# Were one renamed, it would be among the others, and here would be none.
ran=$(grep -c '^test .* \.\.\. ok$' "$said")
if [ "$slow_status" = 0 ] && [ "$ran" != "${#slow[@]}" ]; then
    echo "scripts/tests.sh: $ran of ${#slow[@]} slow tests ran: is one called otherwise now?"
    slow_status=1
fi
exit $((status ? status : slow_status))
