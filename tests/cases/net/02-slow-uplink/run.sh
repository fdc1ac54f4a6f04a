#!/usr/bin/env bash
# A slow uplink with a deep queue leads to node 2, a fast one to node 3.
. "$CASES/lib/nodes.sh"
star 1 2 3
second_line
keys 1 2 3
{ link 2 10.9.2.2:7000; link 3 10.8.0.3:7000; } | node 1 '"0.0.0.0:7000"'
for id in 2 3; do node $id '"0.0.0.0:7000"' </dev/null; done
tc -n 1 qdisc add dev eth0 root tbf rate 2mbit burst 3kb limit 4mb
for id in 1 2 3; do up $id $id; done
linked 1 2 3

flow 1 3 5 --calls 5 >alone
echo "voice to node 3 alone: $(cat alone)"
control "voice alone misses nothing" below "$(missed alone)" 0.5

flow 1 2 7 --rate 900 --size 1100 --service best-effort --port 7100 >bulk & bulk=$!
sleep 1
flow 1 3 5 --calls 5 >beside
wait $bulk
echo "voice beside best effort to node 2: $(cat beside)"
control "8 Mbit/s are too much for the slow uplink" above "$(missed bulk)" 20
right "best effort over the slow uplink costs voice over the other nothing" below "$(missed beside)" 0.5

sleep 2
"$TRUNKLINE" cat --listen 9 --socket 2.sock >/dev/null &
sleep 0.3
(head -c 20000000 /dev/zero | timeout 12 "$TRUNKLINE" cat --socket 1.sock 2:9) 2>/dev/null &
sleep 2
flow 1 3 8 --calls 5 >beside
echo "voice beside a stream to node 2: $(cat beside)"
right "a stream over the slow uplink costs voice over the other nothing" below "$(missed beside)" 0.5
