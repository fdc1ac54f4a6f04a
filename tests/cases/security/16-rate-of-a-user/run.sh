#!/usr/bin/env bash
. "$CASES/lib/nodes.sh"
keys 1 2
{ link 2 127.0.0.1:7002; printf 'rate = "2 Mbit/s"\n[access]\nrate = "1 Mbit/s"\n'; } |
    HTTP=127.0.0.1:9101 node 1 '"127.0.0.1:7001"'
link 1 127.0.0.1:7001 | HTTP=127.0.0.1:9102 node 2 '"127.0.0.1:7002"'
for id in 1 2; do up $id -; done
linked 1 2
chmod 755 .
chmod 666 1.sock
by python3 "$(dirname "$0")/case.py"
