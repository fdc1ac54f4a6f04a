#!/usr/bin/env bash
# beside.sh TARGET LIST...: makes TARGET and meanwhile, one beside the other, each LIST of
# targets, at idle priority: what TARGET's tests wait for doesn't wait for these. What a list
# says is printed when TARGET has ended.
set -uo pipefail

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

failed=0
jobs=()
target="$1"; shift
for list in "$@"; do
    # shellcheck disable=SC2086 # a list of words
    chrt --idle 0 make --no-print-directory $list >"$logs/${#jobs[@]}" 2>&1 &
    jobs+=($!)
done
make --no-print-directory "$target" || failed=1
for n in "${!jobs[@]}"; do
    wait "${jobs[n]}" || failed=1
    cat "$logs/$n"
done
exit "$failed"
