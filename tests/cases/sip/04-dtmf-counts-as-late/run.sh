#!/usr/bin/env bash
. "$CASES/sip/lib.sh"
gateways
judge
