#!/usr/bin/env bash
# Nodes 1 - 2 - 4, where 2 - 4 is a bad link; node 5 is at node 2.
. "$CASES/security/lib.sh"
keys 1 2 4 5
"$TRUNKLINE" impair --a 127.0.0.1:27102=127.0.0.1:27002 --b 127.0.0.1:27104=127.0.0.1:27004 \
    --delay 10ms --loss 8% --rate "6 Mbit/s" >impair.log 2>&1 &
link 2 127.0.0.1:27002 | listed 1
{ link 1 127.0.0.1:27001; link 4 127.0.0.1:27102; echo 'rate = "6 Mbit/s"'; } | listed 2
link 2 127.0.0.1:27104 | listed 4
link 2 127.0.0.1:27002 | listed 5
for id in 1 2 4 5; do up $id -; done
linked 2 1 4
linked 5 2
sleep 1
judge
