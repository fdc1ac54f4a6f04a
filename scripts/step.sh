#!/usr/bin/env bash
# One step of a test run: says its name, runs it, says how long it took, and how many seconds
# of a processor it used with all that it started and waited for.
#
#   step.sh --start          forget the steps of an earlier run
#   step.sh NAME COMMAND...  run one step
#   step.sh --summary        list the steps since --start, and the tests that are void
#
# Both lists stay in CARGO_TARGET_DIR: steps.log and tmp/void.log.
#
# A command that exits with 77 was skipped (the convention of GNU Automake) and
# has printed a line that says why. In CI (CI set) a skipped step has failed.
# One that exits with 78 can't be run on this machine, whatever is installed: also
# in CI that is no failure.
set -uo pipefail

target="${CARGO_TARGET_DIR:-target}"
log="$target/steps.log"
void="$target/tmp/void.log" # tests/it/common/on_time.rs adds to it
mkdir -p "$target/tmp"

case "$1" in
    --start)
        printf '    %-28s %6s   %6s\n' step wall CPU >"$log"
        rm -f "$void"
        exit 0
        ;;
    --summary)
        echo "==> summary"
        cat "$log"
        [ ! -e "$void" ] || sort "$void"
        count() { grep -c " $1" "$log"; }
        echo "steps: $(count ok$) passed, $(count FAILED) failed, $(count SKIPPED$) skipped"
        exit 0
        ;;
esac

name="$1"; shift
echo "==> $name"
TIMEFORMAT='%R %U %S'
exec 3>&1 4>&2
took=$({ time "$@" >&3 2>&4; } 2>&1; exit $?)
status=$?
case $status in
    0) result="ok" ;;
    77) result="SKIPPED"; [ -z "${CI:-}" ] && status=0 ;;
    78) result="SKIPPED"; status=0 ;;
    *) result="FAILED (exit status $status)" ;;
esac
awk -v name="$name" -v result="$result" '
    { printf "    %-28s %4d s   %4d s  %s\n", name, $1 + 0.5, $2 + $3 + 0.5, result }
' <<<"$took" | tee -a "$log"
exit "$status"
