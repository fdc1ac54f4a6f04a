# shellcheck shell=bash
# Sourced by each case's run.sh: verdicts. The exit status of a case is 10 if all is right and 11
# if the fault is there, which no other program ends with by accident; 77 if a tool is missing, 78
# if this machine can't run it. After any other, the case is broken.
set -uo pipefail

[ "$(ps -o comm= 1)" = timeout ] || { echo "error: run cases by tests/cases/run, which gives them namespaces of their own" >&2; exit 2; }

judged=0 wrong=0

# A case that reaches its end gives its verdict; one that breaks off on the way is broken.
end() {
    local status=$?
    case $status in
        0) [ $judged -gt 0 ] && exit $((10 + wrong))
            echo "broken: nothing was judged"
            exit 2 ;;
        77 | 78) exit $status ;;
        *) exit 2 ;;
    esac
}
trap end EXIT

broken() { echo "broken: $*"; exit 2; }

# skip STATUS WHY...
skip() {
    [ $judged = 0 ] || broken "it would be skipped after a verdict: ${*:2}"
    echo "skipped: ${*:2}"
    exit "$1"
}

# unfit WHY...: this machine can't run the case, whatever is installed.
unfit() { skip 78 "$@"; }

# need TOOL...: skips the case if a tool is missing.
need() {
    local tool
    for tool; do command -v "$tool" >/dev/null || skip 77 "$tool is not installed"; done
}

# control TEXT COMMAND...: holds whether the fault is there or not; otherwise the case is broken.
control() {
    local text=$1
    shift
    "$@" || broken "control: $text"
    echo "control: $text"
}

# right TEXT COMMAND...: is true once the fault is mended. COMMAND ends with 0 or 1; any other
# status (no such program, no such file) is no verdict.
right() {
    local text=$1 status=0
    shift
    "$@" || status=$?
    judged=$((judged + 1))
    case $status in
        0) echo "right: $text" ;;
        1) echo "WRONG: $text"; wrong=1 ;;
        *) broken "$text: \`$*\` ended with status $status" ;;
    esac
}

# by COMMAND...: a program that gives verdicts by lib/verdict.py.
by() {
    local status=0
    "$@" || status=$?
    case $status in
        10 | 11) judged=$((judged + 1)); [ $status = 10 ] || wrong=1 ;;
        *) broken "\`$*\` ended with status $status, not by a verdict" ;;
    esac
}

# below VALUE BOUND, above VALUE BOUND: the case is broken if VALUE is not a number.
below() { number "$1" && awk -v value="$1" -v bound="$2" 'BEGIN { exit !(value < bound + 0) }'; }
above() { number "$1" && awk -v value="$1" -v bound="$2" 'BEGIN { exit !(value > bound + 0) }'; }
number() { [[ $1 =~ ^-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?$ ]] || broken "'$1' is not a number"; }

# field FILE EXPRESSION: of the JSON value `it` in FILE.
field() { python3 -c 'import json, sys; it = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$@"; }
