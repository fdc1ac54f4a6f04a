#!/usr/bin/env bash
# A gateway on host x with a second interface in 198.51.100.0/24, where phone z is.
. "$CASES/sip/lib.sh"
hosts
ip netns add z
ip -n x link add z0 type veth peer name eth0 netns z
ip -n x addr add 198.51.100.1/24 dev z0
ip -n x link set z0 up
ip -n z addr add 198.51.100.9/24 dev eth0
ip -n z link set eth0 up
gateway_x <<'END'
listen = ["udp:192.0.2.13:5060", "udp:198.51.100.1:5060"]
allow = ["192.0.2.0/24", "198.51.100.0/24"]
END
judge
