#!/usr/bin/env bash
# Nodes 1 and 2 have two lines; faults that come and go, or concern some packets.
. "$CASES/lib/nodes.sh"
need nft
star 1 2
ip link add eth1 netns 1 type veth peer name eth1 netns 2
for id in 1 2; do
    ip -n $id addr add "10.8.0.$id/24" dev eth1
    ip -n $id link set eth1 up
done
ip -n 2 addr add 10.7.7.2/32 dev lo
ip -n router route add 10.7.7.2 via 10.9.2.2
keys 1 2
ANY='"0.0.0.0:7000", "[::]:7000"'

# of PATH EXPRESSION: a property of node 1's link by that path.
of() {
    ask links 1 --json >links
    field links "[$2 for l in it if l['path'] == '$1'][0]"
}
soon() {
    local end=$((SECONDS + $1))
    until "${@:2}"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.2
    done
}
is() { [ "$(of "$1" "$2" 2>/dev/null)" = "$3" ]; }
said() { grep -c "$1" 1.log; }
least() { [ "$1" -ge "$2" ]; }
most() { [ "$1" -le "$2" ]; }
restart() {
    down 1
    down 2
    rm -f 1.log 2.log
    up 2 2
}
node 2 "$ANY" </dev/null
up 2 2

# Half of the packets are refused, while calls run.
{ link 2 10.8.0.2:7000; echo 'path = "lte"'; } | node 1 "$ANY"
up 1 1
linked 1 2
flow 1 2 26 --calls 5 --port 7100 >there &
there=$!
sleep 2
inside 1 nft -f - <<'END'
table ip refuses { chain output { type filter hook output priority 0; oifname eth1 udp dport 7000 numgen random mod 2 == 0 drop; }; }
END
sleep 3
seen=
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
    seen+="$(of lte '[l["send_error"]["lasts"], l["send_error"]["partial"]]');"
    sleep 0.5
done
right "and not that it has ended" [ "$(said 'packets leave again')" = 0 ]
wait $there
control "some packets left" above "$(field there 'it["received"]')" 500
right "some packets are refused: links says so each time: $(tr ';' '\n' <<<"$seen" | sort | uniq -c | tr '\n' ' ')" \
    [ -z "$(tr ';' '\n' <<<"$seen" | grep -v '^\[True, True\]$' | grep .)" ]
right "the log says so" least "$(said 'refuses to send some of the packets.*path="lte"')" 1
right "in few lines" most "$(said 'refuses to send')" 2
inside 1 nft delete table ip refuses
ended() { [ "$(said 'packets leave again')" = 1 ]; }
right "then it has ended" soon 8 ended
restart

# One fault follows another without a pause.
up 1 1
linked 1 2
inside 1 nft -f - <<'END'
table ip refuses { chain output { type filter hook output priority 0; oifname eth1 udp dport 7000 drop; }; }
END
sleep 5
for _ in 1 2 3; do
    ip -n 2 link set eth1 arp off
    ip -n 1 neigh flush dev eth1
    inside 1 nft delete table ip refuses
    sleep 6
    inside 1 nft -f - <<'END'
table ip refuses { chain output { type filter hook output priority 0; oifname eth1 udp dport 7000 drop; }; }
END
    ip -n 2 link set eth1 arp on
    sleep 6
done
right "between two faults the log doesn't say that packets leave" [ "$(said 'packets leave again')" = 0 ]
inside 1 nft delete table ip refuses
control "the link is up again" wait_up 1 2 10
sleep 4
right "afterwards it does, once" [ "$(said 'packets leave again')" = 1 ]
restart

# Two routers by one route, chosen by the ports, of which one is silent.
inside 1 sysctl -qw net.ipv4.fib_multipath_hash_policy=1
ip -n 1 route add 10.7.7.2 nexthop via 10.9.1.1 dev eth0 nexthop via 10.8.0.2 dev eth1
for port in 7001 7002 7003 7004 7005 7006 7007 7008; do
    gone=$(ip -n 1 route get 10.7.7.2 ipproto udp sport 7000 dport $port | grep -o 'dev eth[01]')
    [ "$gone" = "dev eth1" ] && by_eth1=$port || by_eth0=$port
done
control "the ports choose" [ -n "${by_eth0:-}" ] && [ -n "${by_eth1:-}" ]
node 2 "\"0.0.0.0:$by_eth0\", \"0.0.0.0:$by_eth1\"" </dev/null
down 2
up 2 2
ip -n 2 link set eth1 arp off
ip -n 1 neigh flush dev eth1
for line in fibre:$by_eth0 lte:$by_eth1; do
    link 2 10.7.7.2:${line#*:}
    echo "path = \"${line%:*}\""
done | node 1 "$ANY"
up 1 1
control "the link by eth0 is up" soon 10 is fibre 'l["up"]' True
right "several next hops: links names the one that the ports lead to" soon 10 is lte 'l["silent_next_hop"]' 10.8.0.2
right "the other link has none" is fibre 'l["silent_next_hop"]' None
sleep 5
right "the log doesn't say that packets leave" [ "$(said 'packets leave again')" = 0 ]
ip -n 2 link set eth1 arp on
ip -n 1 route del 10.7.7.2
restart

# A policy rule chooses by port.
node 2 "$ANY" </dev/null
down 2
up 2 2
ip -n 1 route add 10.7.7.2 via 10.9.1.1 dev eth0 metric 100
ip -n 1 route add 10.7.7.2 via 10.8.0.2 dev eth1 table 7
{ link 2 10.7.7.2:7000; echo 'path = "lte"'; echo 'source = "10.8.0.1"'; } | node 1 "$ANY"
up 1 1
right "the link leaves by another interface" soon 8 is lte 'l["leaves_by"]' eth0
inside 1 curl -s http://127.0.0.1:9101/metrics >metrics
right "the metric says so" grep -q 'link_leaves_elsewhere.*lte.* 1' metrics
for rule in "dport 7000" "sport 7000"; do
    # shellcheck disable=SC2086
    ip -n 1 rule add ipproto udp $rule table 7
    right "a rule with $rule mends that" soon 8 is lte 'l["leaves_by"]' None
    # shellcheck disable=SC2086
    ip -n 1 rule del ipproto udp $rule table 7
    right "without it, it is back" soon 8 is lte 'l["leaves_by"]' eth0
done
down 1
down 2
rm -f 1.log 2.log

# The interface of a link-local listener is deleted, and comes back.
ip -n 1 link set eth1 addrgenmode none
ip -n 2 link set eth1 addrgenmode none
line() {
    local id
    for id in 1 2; do
        ip -n $id addr add fe80::$id/64 dev eth1 nodad
        ip -n $id link set eth1 up
    done
}
line
node 2 '"[fe80::2%eth1]:7000"' </dev/null
{ link 2 "[fe80::2%eth1]:7000"; echo 'path = "lte"'; } | node 1 '"[fe80::1%eth1]:7000", "0.0.0.0:7000"'
up 2 2
up 1 1
linked 1 2
for time in 1 2; do
    before=$(ip -n 1 -o link show eth1 | cut -d: -f1)
    ip -n 1 link del eth1
    sleep 3
    ip link add eth1 netns 1 type veth peer name eth1 netns 2
    ip -n 1 link set eth1 addrgenmode none
    ip -n 2 link set eth1 addrgenmode none
    control "it has another index" [ "$(ip -n 1 -o link show eth1 | cut -d: -f1)" != "$before" ]
    sleep 1
    line
    right "time $time: the link is up again" wait_up 1 2 12
    right "time $time: node 1 says that it listens there again" least "$(said 'the interface is back')" $time
done
sed -i 's/^neighbour = 2/&\nmtu = 1400/' 1.toml
ask reload 1 >reload
right "a reload doesn't want a restart for that: $(tr '\n' ' ' <reload)" [ "$(grep -c listen reload)" = 0 ]
