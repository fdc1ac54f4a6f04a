#!/usr/bin/env bash
# Forty nodes behind one address; their relay restarts.
. "$CASES/lib/nodes.sh"
star 2 4
nodes=40
ids=$(seq 101 $((100 + nodes)))
# shellcheck disable=SC2086
keys 2 $ids
echo 'unconfigured_peers = 1000' | node 2 '"0.0.0.0:7000"'
for id in $ids; do
    HTTP=127.0.0.1:$((10000 + id)) node "$id" "\"0.0.0.0:$((20000 + id))\"" < <(link 2 10.9.2.2:7000)
    up "$id" 4
done
sleep 1

# measure: seconds until the relay, started now, has all its links; at most 40.
measure() {
    rm -f 2.log
    up 2 2
    python3 - $nodes <<'END'
import sys, time
start = time.monotonic()
while (spent := time.monotonic() - start) < 40:
    if open("2.log").read().count("link is up") >= int(sys.argv[1]):
        break
    time.sleep(0.05)
print(round(spent, 1))
END
}

first=$(measure)
control "all links come up at first (after $first s)" below "$first" 39
down 2 KILL
sleep 3
restart=$(measure)
echo "handshakes refused: $(ask status 2 --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["handshakes_refused"])')"
right "all links are up within 3 s of a restart (it took $restart s)" below "$restart" 3
