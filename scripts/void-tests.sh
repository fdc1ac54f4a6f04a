#!/usr/bin/env bash
# void-tests.sh COMMAND...: runs the tests that are void by COMMAND (cargo nextest run …) once
# more, now that nothing runs beside them. What is void then stays so.
set -euo pipefail

void="${CARGO_TARGET_DIR:-target}/tmp/void.log"
[ -s "$void" ] || exit 0
filter=$(sed 's/^void: it::\(.*\): wake-ups.*/test(=\1)/' "$void" | paste -sd '|')
rm "$void"
"$(dirname "$0")/step.sh" "void tests again" "$@" --filterset "$filter"
