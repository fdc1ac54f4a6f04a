#!/usr/bin/env bash
# Sites 1 and 3 are behind one NAT, the router; node 2 is a relay.
. "$CASES/lib/nodes.sh"
star 1 2 3
keys 1 2 3
for site in 1 3; do link 2 10.9.2.2:7000 | node $site '"0.0.0.0:7000"'; done
node 2 '"0.0.0.0:7000"' </dev/null

# ports PORT-OF-1 PORT-OF-3: a NAT without memory, whose ports change at once.
ports() {
    inside router nft -f - <<END
table ip nat
delete table ip nat
table ip nat {
    chain in {
        type filter hook prerouting priority -300;
        ip daddr 10.9.2.1 udp dport $1 ip daddr set 10.9.1.2 udp dport set 7000
        ip daddr 10.9.2.1 udp dport $2 ip daddr set 10.9.3.2 udp dport set 7000
    }
    chain out {
        type filter hook postrouting priority 300;
        oifname "r2" ip saddr 10.9.1.2 udp sport 7000 ip saddr set 10.9.2.1 udp sport set $1
        oifname "r2" ip saddr 10.9.3.2 udp sport 7000 ip saddr set 10.9.2.1 udp sport set $2
    }
}
END
}
is_down() { ! is_up "$@"; }
# leads PORT: the relay's link to site 1 leads to this port of the NAT.
leads() {
    ask links 2 --json >links
    [ "$(field links "[l['neighbour'] for l in it if '10.9.2.1:$1' in str(l)]")" = '[1]' ]
}

ports 10001 10003
for id in 1 2 3; do up $id $id; done
linked 2 1 3
control "the relay sees the NAT's port" leads 10001

pids=()
for site in 1 3; do
    flow $site 2 15 --port "600$site" >"forth-$site" & pids+=($!)
    flow 2 $site 15 --port 7000 >"back-$site" & pids+=($!)
done
sleep 4
ports 10003 10001
sleep 4
control "the relay has followed" leads 10003
ports 10001 10003
wait "${pids[@]}"
for call in forth-1 back-1 forth-3 back-3; do
    right "ports swapped twice: $call misses $(missed $call) %" below "$(missed $call)" 0.01
done

inside router nft delete table ip nat
inside 1 sysctl -qw net.ipv4.conf.eth0.promote_secondaries=1
ip -n 1 addr add 10.9.1.3/24 dev eth0
flow 1 2 12 >forth & forth=$!
flow 2 1 12 >back & back=$!
sleep 4
ip -n 1 addr del 10.9.1.2/24 dev eth0
wait $forth $back
ask links 2 --json >links
control "the site has its other address" grep -q '10\.9\.1\.3:7000' links
for call in forth back; do
    right "another address: $call misses $(missed $call) %" below "$(missed $call)" 0.2
done

ip -n 1 link del eth0
sleep 20
control "the link is down without an interface" is_down 1 2
ip link add eth0 netns 1 type veth peer name r1 netns router
ip -n 1 addr add 10.9.1.3/24 dev eth0
ip -n router addr add 10.9.1.1/24 dev r1
ip -n 1 link set eth0 up
ip -n router link set r1 up
ip -n 1 route add default via 10.9.1.1
back=$(date +%s%3N)
wait_up 1 2 10
took=$(($(date +%s%3N) - back))
right "the link is up again within a second, $took ms after the interface" below $took 1000
