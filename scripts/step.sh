#!/usr/bin/env bash
# One step of a test run: says its name, runs it, says how long it took.
#
#   step.sh --start          forget the steps of an earlier run
#   step.sh NAME COMMAND...  run one step
#   step.sh --summary        list the steps since --start
#
# A command that exits with 77 was skipped (the convention of GNU Automake) and
# has printed a line that says why. In CI (CI set) a skipped step has failed.
# One that exits with 78 can't be run on this machine, whatever is installed: also
# in CI that is no failure.
set -uo pipefail

log="${CARGO_TARGET_DIR:-target}/steps.log"
mkdir -p "$(dirname "$log")"

case "$1" in
    --start) : >"$log"; exit 0 ;;
    --summary) echo "==> summary"; cat "$log"; exit 0 ;;
esac

name="$1"; shift
echo "==> $name"
SECONDS=0
"$@"
status=$?
case $status in
    0) result="ok" ;;
    77) result="SKIPPED"; [ -z "${CI:-}" ] && status=0 ;;
    78) result="SKIPPED"; status=0 ;;
    *) result="FAILED (exit status $status)" ;;
esac
printf '    %-28s %4d s  %s\n' "$name" "$SECONDS" "$result" | tee -a "$log"
exit $status
