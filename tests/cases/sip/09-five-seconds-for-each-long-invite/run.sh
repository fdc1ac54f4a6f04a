#!/usr/bin/env bash
# Host x's firewall drops TCP.
. "$CASES/sip/lib.sh"
gateways
ip netns exec x nft -f - <<'END'
table inet firewall {
    chain input {
        type filter hook input priority 0
        tcp dport 5060 drop
    }
}
END
judge
