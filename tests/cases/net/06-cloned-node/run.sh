#!/usr/bin/env bash
# Hosts 1 and 4 run the same node: same key, id and certificate. Both dial relay 2; 3 is a site.
. "$CASES/lib/nodes.sh"
star 1 2 3 4
keys 1 2 3
for id in 1 3; do link 2 10.9.2.2:7000 | node $id '"0.0.0.0:7000"'; done
node 2 '"0.0.0.0:7000"' </dev/null
sed "s#$WORK/1\.sock#$WORK/4.sock#; s#$WORK/1\.ctl#$WORK/4.ctl#" 1.toml >4.toml
for id in 2 3 1; do up $id $id; done
linked 1 2
linked 3 2
sleep 2
flow 1 3 5 >alone
control "a call misses nothing before the clone starts" below "$(missed alone)" 0.5
flow 1 3 25 >beside & flow=$!
sleep 5
echo "the clone starts"
up 4 4
wait $flow
echo "a call of node 1: $(cat beside)"
grep -h WARN 2.log | cut -c1-200 | tail -3
right "the call misses little" below "$(missed beside)" 5
right "the relay's log names both addresses" grep -qE 'WARN.*(10\.9\.1\.2.*10\.9\.4\.2|10\.9\.4\.2.*10\.9\.1\.2)' 2.log
