#!/usr/bin/env bash
# Calls are idle after 12 s here, not after ten minutes.
. "$CASES/sip/lib.sh"
SIP='idle = "12s"' gateways
judge
