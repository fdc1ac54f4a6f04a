#!/usr/bin/env bash
# Every test of the workspace, two of its programs at a time: most tests wait for a clock and
# leave the processors free. Meanwhile, on processors that are idle, lab and daemon are built
# optimised for the steps that come, and the tests run that calculate for minutes and heed no
# clock. Arguments go to cargo.
set -uo pipefail
cd "$(dirname "$0")/.."

# Programs with tests at the same time.
AT_ONCE=2
# Those that load the machine, and look at delays meanwhile: nothing else runs beside them.
alone=(backpressure remote_keys)
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

# What calculates gives way to what waits for a clock.
calculates() {
    local failed=0
    run "unit tests" nice cargo test "$@" --workspace --lib --bins --examples || failed=1
    run "doc tests" nice cargo test "$@" --workspace --doc || failed=1
    return "$failed"
}

# The programs: each a file, or a folder with a main.rs.
programs() {
    local path
    for path in crates/*/tests/*.rs; do basename "$path" .rs; done
    for path in crates/*/tests/*/main.rs; do basename "${path%/main.rs}"; done
}

# program NAME...: the tests of this program, of each crate that has one of that name. A file
# says that all have passed, since of two jobs that end at once `wait -n` may tell of one.
program() {
    local name="$1"; shift
    run "$name" cargo test "$@" --workspace --test "$name" -- "${slow[@]/#/--skip=}" &&
        touch "$logs/$name.passed"
}

waits() {
    local name
    for name in "${all[@]}"; do
        case " ${alone[*]} " in *" $name "*) continue ;; esac
        while [ "$(jobs -rp | wc -l)" -ge "$AT_ONCE" ]; do wait -n; done
        program "$name" "$@" &
    done
    wait
}

mapfile -t all < <(programs | sort -u)
failed=0
calculates "$@" & calculating=$!
run beside beside "$@" & beside=$!
(trap - EXIT; waits "$@")
wait "$calculating" || failed=1
wait "$beside" || failed=1
for name in "${alone[@]}"; do program "$name" "$@"; done
for name in "${all[@]}"; do
    [ -e "$logs/$name.passed" ] || { echo "scripts/tests.sh: $name: failed"; failed=1; }
done
exit "$failed"
