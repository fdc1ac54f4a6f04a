#!/usr/bin/env bash
# Do simulator and daemons agree? The same chain, loss processes and calls in
# both, at four points; exit 1 if the 95 % intervals of what the real-time
# service misses do not overlap at one of them.
#
#   scripts/agreement.sh [SECONDS]     # of each daemon run; 60
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
target=${CARGO_TARGET_DIR:-target}
cargo build --quiet --release -p trunkline
cargo build --quiet --release -p trunkline-sim --example chain
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The real-time run of a result on standard input: missed, low, high (percent).
real_time() {
    tr -d ' \n' | sed 's/.*"service":"real-time"\(.*\)/\1/; s/.*"missed_percent":\([^,]*\),"missed_interval":\[\([^,]*\),\([^]]*\)\].*/\1 \2 \3/'
}

printf '%-22s %-34s %-34s %s\n' "loss, burstiness" "simulator, missed % (95 %)" "daemons, missed % (95 %)" "overlap"
verdict=0
for point in "2% 2%" "5% 25%" "10% 50%" "10% 75%"; do
    read -r loss burst <<<"$point"
    sim=$("$target/release/examples/chain" --loss "$loss" --burst "$burst" --seconds $((10 * seconds)) --seed 11 --json | real_time)
    live=$("$target/release/trunkline" demo --loss "$loss" --burst "$burst" --seconds "$seconds" --seed 12 \
        --out "$work" --json 2>/dev/null | real_time)
    if awk -v a="$sim" -v b="$live" 'BEGIN { split(a, s); split(b, d); exit !(s[2] <= d[3] && d[2] <= s[3]) }'; then
        overlap=yes
    else
        overlap=NO verdict=1
    fi
    show() { awk '{ printf "%.3f (%.3f – %.3f)", $1, $2, $3 }' <<<"$1"; }
    printf '%-22s %-34s %-34s %s\n' "$loss, $burst" "$(show "$sim")" "$(show "$live")" "$overlap"
done
exit $verdict
