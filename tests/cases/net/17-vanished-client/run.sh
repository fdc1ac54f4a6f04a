#!/usr/bin/env bash
# Hosts 2 and 3 vanish, host 4 reads nothing; each has a connection to the proxy on host 1.
. "$CASES/lib/nodes.sh"
star 1 2 3 4
keys 1
node 1 '"10.9.1.2:7000"' </dev/null
up 1 1
sleep 1
by ip netns exec 1 python3 "$(dirname "$0")/case.py"
