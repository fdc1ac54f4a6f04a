#!/usr/bin/env bash
# The host of two phones loses its network.
. "$CASES/sip/lib.sh"
gateways
judge
