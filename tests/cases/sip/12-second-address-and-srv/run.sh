#!/usr/bin/env bash
# A gateway on host x with a name server: pbx.example has a dead address and then a live one,
# srv.example only SRV records.
. "$CASES/sip/lib.sh"
hosts
mkdir -p /etc/netns/x
echo "nameserver 127.0.0.1" >/etc/netns/x/resolv.conf
ip netns exec x python3 "$(dirname "$0")/dns.py" >dns.log 2>&1 &
gateway_x <<'END'
listen = ["udp:192.0.2.13:5060"]
allow = ["192.0.2.0/24"]
END
judge
