#!/usr/bin/env bash
# Compares the simulator with real daemons for two minutes: the quick form of
# beyond/agreement. Needs both programs, built with the profile `ci`.
#
# Skips with status 78 if no installation would help: network namespaces are forbidden, or
# the machine was too busy for valid measurements.
set -uo pipefail
cd "$(dirname "$0")/.."

target="${CARGO_TARGET_DIR:-target}"
skip() {
    echo "skipped: $*"
    exit 78
}

[ -c /dev/net/tun ] || skip "there is no /dev/net/tun"
unshare --net true 2>/dev/null || unshare --map-root-user --net true 2>/dev/null ||
    skip "network namespaces are not permitted"

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$target/ci/trunkline-lab" run beyond/agreement --testbed --quick --out "$out/lab" \
    --trunkline "$target/ci/trunkline" | tee "$out/said"
status=${PIPESTATUS[0]}
if [ "$status" = 1 ] && grep -q '^INVALID' "$out/said"; then
    skip "this machine was too busy for valid measurements"
fi
exit "$status"
