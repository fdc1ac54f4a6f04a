#!/usr/bin/env bash
. "$CASES/sip/lib.sh"
need nft
gateways
judge
# p behind a real NAT, on host x.
ip netns add n
ip -n x link add n0 type veth peer name eth0 netns n
ip -n x addr add 10.0.0.1/24 dev n0
ip -n x link set n0 up
ip -n n addr add 10.0.0.9/24 dev eth0
ip -n n link set eth0 up
ip -n n link set lo up
ip -n n route add default via 10.0.0.1
ip netns exec x sysctl -qw net.ipv4.ip_forward=1
ip netns exec x nft -f - <<'END'
table ip nat {
    chain postrouting {
        type nat hook postrouting priority 100
        oifname "eth0" masquerade random
    }
}
END
by python3 "$(dirname "$0")/nat.py"
