#!/usr/bin/env bash
# A relay has two addresses; a site behind a stateful firewall knows it by the second one.
. "$CASES/lib/nodes.sh"
star 1 2
keys 1 2
ip -n 2 addr add 10.9.22.2/32 dev lo
ip -n router route add 10.9.22.2 via 10.9.2.2
link 2 10.9.22.2:7000 | node 1 '"0.0.0.0:7000"'
node 2 '"0.0.0.0:7000"' </dev/null

up 1 1
up 2 2
linked 1 2
down 1
down 2
sleep 1

firewall 1
up 1 1
up 2 2
right "the link comes up through a stateful firewall" wait_up 1 2 12
