#!/usr/bin/env bash
# The first two calls with the usual rules, the others with rules for p's network.
. "$CASES/sip/lib.sh"
gateways
by python3 "$(dirname "$0")/case.py" usual
cat >>a.toml <<'END'
[[sip.network]]
name = "phones"
networks = ["192.0.2.11"]
symmetric = false
sources = ["192.0.2.13"]
END
control "reloaded" "$TRUNKLINE" reload --control a.ctl
by python3 "$(dirname "$0")/case.py" phones
