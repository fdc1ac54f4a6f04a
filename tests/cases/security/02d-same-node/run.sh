#!/usr/bin/env bash
# Only the path 1 - 2 - 4 is left, of 5 Mbit/s; node 5 is at node 2.
. "$CASES/security/lib.sh"
overlay 'rate = "5 Mbit/s"'
down 3
up 5 -
linked 5 2
judge
