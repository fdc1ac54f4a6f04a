# shellcheck shell=bash
# Sourced by each case of this family. Hosts, each a namespace, at one Ethernet:
#   a 192.0.2.1, b 192.0.2.2   gateways of two sites, linked by the overlay
#   p 192.0.2.11               a phone's host at a's site
#   q 192.0.2.12               a phone's host at b's site
#   x 192.0.2.13               a third host
. "$CASES/lib/case.sh"

hosts() {
    local host name number
    ip link add hub type bridge
    ip link set hub up
    for host in a:1 b:2 p:11 q:12 x:13; do
        name=${host%:*} number=${host#*:}
        ip netns add "$name"
        ip link add "v$number" type veth peer name eth0 netns "$name"
        ip link set "v$number" master hub up
        ip -n "$name" link set lo up
        ip -n "$name" addr add "192.0.2.$number/24" dev eth0
        ip -n "$name" link set eth0 up
    done
}

start() {
    ip netns exec "$1" "$TRUNKLINE" node --config "$2.toml" >"$2.log" 2>&1 &
    echo $! >"$2.pid"
}

# site NAME ID ADDRESS PHONE OTHER OTHER-ID OTHER-ADDRESS OTHER-PHONE
site() {
    cat >"$1.toml" <<END
[node]
id = $2
name = "site-$1"
key = "$1.key"
listen = ["0.0.0.0:7000"]
control = "$1.ctl"
http = "127.0.0.1:9101"
[[link]]
neighbour = $6
key = "$(cat "$5.pub")"
address = "$7:7000"
[sip]
listen = ["udp:$3:5060", "tcp:$3:5060"]
allow = ["192.0.2.0/24"]
trust = ["$7"]
records = "$1.jsonl"
${SIP:-}
[[sip.route]]
to = "$8"
via = "udp:$7:5060"
END
}

# gateways: the hosts, with a and b running. SIP has further lines of their section [sip].
gateways() {
    local name
    hosts
    for name in a b; do "$TRUNKLINE" keygen $name.key >$name.pub 2>/dev/null || broken "keygen failed"; done
    site a 1 192.0.2.1 192.0.2.11 b 2 192.0.2.2 192.0.2.12
    site b 2 192.0.2.2 192.0.2.12 a 1 192.0.2.1 192.0.2.11
    for name in a b; do start $name $name; done
    sleep 2.5
    for name in a b; do control "gateway $name runs" kill -0 "$(cat $name.pid)"; done
}

# gateway_x: a gateway of its own on host x; standard input has its section [sip].
gateway_x() {
    "$TRUNKLINE" keygen x.key >/dev/null 2>&1
    cat - >further
    cat >x.toml - further <<'END'
[node]
id = 3
name = "x"
key = "x.key"
listen = ["127.0.0.1:7000"]
control = "x.ctl"
http = "127.0.0.1:9101"
[sip]
END
    start x x
    sleep 1.5
    control "gateway x runs" kill -0 "$(cat x.pid)"
}

# judge: the verdicts of the case's case.py.
judge() { by python3 "$(dirname "$0")/case.py"; }
