#!/usr/bin/env bash
. "$CASES/security/lib.sh"
gateways
judge
