#!/usr/bin/env bash
# The address in `listen` comes 15 s after boot. Starts the node as its unit for systemd does.
. "$CASES/lib/nodes.sh"
star 1
keys 1
node 1 '"10.9.1.99:7000"' </dev/null

# setting NAME DEFAULT: of the unit.
setting() { sed -n "s/^$1=//p" "$REPOSITORY"/packaging/*.service | grep . || echo "$2"; }
burst=$(setting StartLimitBurst 5)
interval=$(setting StartLimitIntervalSec 10)
pause=$(setting RestartSec 0)
echo "the unit: at most $burst starts in $interval s, $pause s apart"

(sleep 15; ip -n 1 addr add 10.9.1.99/24 dev eth0) &
begin=$SECONDS
starts=()
while [ $((SECONDS - begin)) -lt 25 ]; do
    recent=0
    for at in "${starts[@]}"; do [ $((SECONDS - at)) -lt "${interval%s}" ] && recent=$((recent + 1)); done
    [ "$burst" = 0 ] || [ "$recent" -lt "$burst" ] || { echo "systemd leaves the unit failed after $((SECONDS - begin)) s"; break; }
    starts+=($SECONDS)
    up 1 1
    while kill -0 "$(cat 1.pid)" 2>/dev/null && [ $((SECONDS - begin)) -lt 25 ]; do sleep 0.1; done
    sleep "${pause%s}"
done
tail -1 1.log
[ $((SECONDS - begin)) -ge 16 ] || sleep $((16 - SECONDS + begin))
control "the address is there" test -n "$(ip -n 1 -o addr show dev eth0 to 10.9.1.99)"
right "the node runs once the address is there" kill -0 "$(cat 1.pid)"
