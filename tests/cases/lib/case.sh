# shellcheck shell=bash
# Sourced by each case's run.sh: verdicts. The exit status of a case is 0 if all is right,
# 1 if the fault is there, 2 if the case itself is broken, 78 if it was skipped.
set -uo pipefail

[ "$(ps -o comm= 1)" = timeout ] || { echo "error: run cases by tests/cases/run, which gives them namespaces of their own" >&2; exit 2; }

judged=0 wrong=0

# Ends with status 0 or 1 only by verdicts: anything else that fails means a broken case.
end() {
    local status=$?
    case $status in
        0) [ $judged -gt 0 ] && exit $wrong
            echo "broken: nothing was judged"
            exit 2 ;;
        2 | 78) exit $status ;;
        *) exit 2 ;;
    esac
}
trap end EXIT

skip() { echo "skipped: $*"; exit 78; }
broken() { echo "broken: $*"; exit 2; }

# need TOOL...: skips the case if a tool is missing.
need() {
    local tool
    for tool; do command -v "$tool" >/dev/null || skip "$tool is not installed"; done
}

# control TEXT COMMAND...: holds whether the fault is there or not; otherwise the case is broken.
control() {
    local text=$1
    shift
    "$@" || broken "control: $text"
    echo "control: $text"
}

# right TEXT COMMAND...: is true once the fault is mended.
right() {
    local text=$1
    shift
    judged=$((judged + 1))
    if "$@"; then echo "right: $text"; else echo "WRONG: $text"; wrong=1; fi
}

# by COMMAND...: a program that gives verdicts by lib/verdict.py.
by() {
    "$@"
    case $? in
        0) judged=$((judged + 1)) ;;
        1) judged=$((judged + 1)) wrong=1 ;;
        *) exit 2 ;;
    esac
}

# below VALUE BOUND, above VALUE BOUND: false if VALUE is not a number.
below() { compared "$1" && awk -v value="$1" -v bound="$2" 'BEGIN { exit !(value < bound + 0) }'; }
above() { compared "$1" && awk -v value="$1" -v bound="$2" 'BEGIN { exit !(value > bound + 0) }'; }
compared() { [[ $1 =~ ^-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?$ ]]; }

# field FILE EXPRESSION: of the JSON value `it` in FILE.
field() { python3 -c 'import json, sys; it = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$@"; }
