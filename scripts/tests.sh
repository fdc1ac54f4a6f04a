#!/usr/bin/env bash
# Every test of the workspace, two of its programs at a time: most tests wait for a clock and
# leave the processors free. Meanwhile, on processors that are idle, lab and daemon are built
# optimised for the steps that come, and the tests run that calculate for minutes and heed no
# clock. Arguments go to cargo.
set -uo pipefail
cd "$(dirname "$0")/.."

# Programs with tests at the same time.
AT_ONCE=2
# By their names, which no other test's has in it.
slow=(every_experiment shards_processors_and_interruptions_leave_no_trace)

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# Builds what is to come, and runs the slow tests. Were one renamed, it would be among the
# others, and here would be none.
beside() {
    chrt --idle 0 cargo build --quiet --release "$@" -p trunkline-lab -p trunkline &&
        chrt --idle 0 cargo test "$@" --workspace --test runs --test snapshots -- "${slow[@]}"
    local status=$? ran
    ran=$(grep -c '^test .* \.\.\. ok$' "$logs/beside")
    if [ "$status" = 0 ] && [ "$ran" != "${#slow[@]}" ]; then
        echo "scripts/tests.sh: $ran of ${#slow[@]} slow tests ran: is one called otherwise now?"
        status=1
    fi
    return "$status"
}

# run NAME COMMAND...: what it says is shown in one piece, when it has ended.
run() {
    local log="$logs/$1"; shift
    "$@" >"$log" 2>&1
    local status=$?
    cat "$log"
    return "$status"
}

programs=("--lib --bins --examples" "--doc")
while read -r name; do programs+=("--test $name"); done \
    < <(basename -s .rs crates/*/tests/*.rs | sort -u)

failed=0
run beside beside "$@" &
for program in "${programs[@]}"; do
    if [ "$(jobs -rp | wc -l)" -gt "$AT_ONCE" ]; then wait -n || failed=1; fi
    # Its words are arguments.
    # shellcheck disable=SC2086
    run "$program" cargo test "$@" --workspace $program -- "${slow[@]/#/--skip=}" &
done
while [ "$(jobs -p | wc -l)" -gt 0 ]; do wait -n || failed=1; jobs >/dev/null; done
exit "$failed"
