#!/usr/bin/env bash
# Node 1 has links to one address by eth0, by eth1 and by interfaces with one fault each.
. "$CASES/lib/nodes.sh"
need nft tc
star 1 2
ip link add eth1 netns 1 type veth peer name eth1 netns 2
for id in 1 2; do
    ip -n $id addr add "10.8.0.$id/24" dev eth1
    ip -n $id addr add fd08::$id/64 dev eth1 nodad
    ip -n $id link set eth1 up
done
ip -n 2 addr add 10.7.7.2/32 dev lo
ip -n 2 addr add fd07::2/128 dev lo nodad
ip -n router route add 10.7.7.2 via 10.9.2.2
ip -n router route add fd07::2 via fd09:2::2
# A modem without a carrier: a TUN device without a program behind it.
ip -n 1 tuntap add wwan0 mode tun || unfit "there are no TUN devices"
ip -n 1 addr add 10.6.0.1/24 dev wwan0
ip -n 1 link set wwan0 up
by_eth1() { ip -n 1 route replace 10.7.7.2 via 10.8.0.2 dev eth1 metric 200; }
by_eth1
ip -n 1 route add 10.7.7.2 via 10.9.1.1 dev eth0 metric 100
ip -n 1 route add 10.7.7.2 dev wwan0 metric 300
keys 1 2
# links PATH:INTERFACE...: lines of node 1's file.
links() {
    local line
    for line; do
        link 2 10.7.7.2:7000
        printf 'path = "%s"\ninterface = "%s"\n' "${line%:*}" "${line#*:}"
    done
}
ANY='"0.0.0.0:7000", "[::]:7000"'
node 2 "$ANY" </dev/null
up 2 2

# of PATH EXPRESSION: a property of node 1's link by that path.
of() {
    ask links 1 --json >links
    field links "[$2 for l in it if l['path'] == '$1'][0]"
}
why() { of "$1" '(l["send_error"] or {"error": None})["error"]'; }
lasts() { of "$1" '(l["send_error"] or {"lasts": False})["lasts"] and l["send_error"]["error"]'; }
said() { grep -c "$1" 1.log; }
least() { [ "$1" -ge "$2" ]; }
# again: ends node 1, and node 2 with what it knows of that.
again() { down 1; down 2; up 2 2; }
silent() { ip -n 2 link set eth1 arp off; ip -n 1 neigh flush dev eth1; }
# soon COMMAND OUTPUT [SECONDS]: whether the command prints that within 4 s.
soon() {
    local end=$((SECONDS + ${3:-4}))
    until [ "$($1)" = "$2" ]; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.2
    done
}

# Each link has its fault from the start. Handshakes alone fill no socket.
silent
links one:wan1 fibre:eth0 lte:eth1 other:wan2 modem:wwan0 | node 1 "$ANY"
up 1 1
control "the link by eth0 is up" wait_up 1 2 10
sleep 8
right "from the start: links names the next hop that is silent" [ "$(of lte 'l["silent_next_hop"]')" = 10.8.0.2 ]
right "from the start: so does the log" least "$(said 'ip neigh show 10.8.0.2.*path="lte"')" 1
waits=$(of lte 'l["stalled_s"] or 0')
right "from the start: it waits for that time, $waits s" above "$waits" 4
for path in one other; do
    right "its interface is missing: link $path says why" [ "$(lasts $path)" = ENODEV ]
    right "its interface is missing: the log has link $path" least "$(said "interface does not exist.*path=\"$path\"")" 1
done
right "the modem's interface has no carrier: links says so" [ "$(of modem 'l["no_carrier"]')" = wwan0 ]
right "the modem's interface has no carrier: so does the log" least "$(said 'wwan0.* has no carrier.*path="modem"')" 1
right "the link by eth0 has no fault" [ "$(of fibre '[l["send_error"], l["silent_next_hop"], l["no_carrier"], l["stalled_s"]]')" = "[None, None, None, None]" ]
ip -n 2 link set eth1 arp on
control "the link by eth1 is up" soon "of lte l[\"up\"]" True 15
{ sed '/^\[\[link\]\]/,$d' 1.toml; printf '[[link]]\nneighbour = 3\npath = "one"\n'; } >new
mv new 1.toml
ask reload 1 >/dev/null
sleep 2
right "no other link takes over what a former one was" [ "$(of one '[l["neighbour"], l["send_error"], l["leaves_by"]]')" = "[3, None, None]" ]
again

# A transfer, and then calls alone.
links lte:eth1 | node 1 "$ANY"
up 1 1
linked 1 2
flow 1 2 3 --calls 20 --rate 200 --size 1100 --service best-effort --port 7100 >bulk
control "the transfer arrived" above "$(field bulk 'it["received"]')" 8000
flow 1 2 7 --calls 5 --port 7200 >calls &
calls=$!
sleep 4
tc -n 1 qdisc add dev eth1 root tbf rate 64bit burst 2kb limit 8mb
sleep 2
late=$(tc -n 1 -s qdisc show dev eth1 | sed -n 's/.*backlog [0-9a-zA-Z]* \([0-9]*\)p.*/\1/p')
tc -n 1 qdisc del dev eth1 root
control "some packets wait in the interface" above "$late" 3
right "of an interface that hangs after a transfer, $late packets leave late" below "$late" 60
wait $calls
sleep 5
control "the link is up again" wait_up 1 2 10
silent
sleep 7
right "after a transfer: links names the next hop that is silent" [ "$(of lte 'l["silent_next_hop"]')" = 10.8.0.2 ]
ip -n 2 link set eth1 arp on
again

# Hellos ride on calls, and no other timer fires.
{ link 2 10.7.7.2:7000; echo 'path = "lte"'; echo 'source = "10.8.0.1"'; } | node 1 "$ANY"
ip -n 1 route del 10.7.7.2 dev eth0
up 1 1
linked 1 2
flow 1 2 20 --calls 20 --port 7100 >there &
there=$!
flow 2 1 20 --calls 20 --port 7300 >back &
back=$!
sleep 3
ip -n 1 route add 10.7.7.2 via 10.9.1.1 dev eth0 metric 100
right "during calls: the log says at once that the link leaves elsewhere" soon 'said leaves.by.*eth0' 1
leaves() { of lte 'l["leaves_by"]'; }
right "so does links" soon leaves eth0
ip -n 1 route add 10.7.7.2 via 10.8.0.2 dev eth1 table 7
ip -n 1 rule add from 10.8.0.1 table 7
right "a policy route mends that: links knows" soon leaves None
right "the log says at once that it has ended" soon 'said packets.leave.again' 1
ip -n 1 rule del from 10.8.0.1 table 7
right "without the rule it is back" soon leaves eth0
wait $there $back
again

# IPv6 prefers a route to the interface that it is given, and sends from any address.
for id in 1 2; do ip -n $id -6 route del default; done
ip -n 1 route add fd07::2 via fd09:1::1 dev eth0 metric 100
ip -n 2 route add fd08::1 dev eth1 2>/dev/null
inside 2 nft 'add table ip6 c; add chain ip6 c i { type filter hook prerouting priority -300; }; add rule ip6 c i ip6 saddr fd08::1 udp dport 7000 counter'
arrived() { inside 2 nft list table ip6 c | sed -n 's/.*packets \([0-9]*\).*/\1/p'; }
for listen in '"[fd08::1]:7000", "[fd09:1::2]:7000"' '"[fd08::1]:7000"'; do
    { link 2 "[fd07::2]:7000"; echo 'path = "lte"'; echo 'interface = "eth1"'; } | node 1 "$listen"
    before=$(arrived)
    up 1 1
    sleep 3
    right "listen = [$listen]: nothing leaves by another interface than the link's" [ "$(arrived)" = "$before" ]
    right "listen = [$listen]: links has the reason" [ "$(lasts lte)" = ENETUNREACH ]
    down 1
done
ip -n 1 route add fd07::2 via fd08::2 dev eth1 metric 50
{ link 2 "[fd07::2]:7000"; echo 'path = "lte"'; echo 'source = "fd08::1"'; } | node 1 "$ANY"
up 1 1
linked 1 2
ip -n 1 addr del fd08::1/64 dev eth1
sleep 1
before=$(arrived)
sleep 3
right "nothing leaves from an address that is gone" [ "$(arrived)" = "$before" ]
right "links has the reason" [ "$(lasts lte)" = EADDRNOTAVAIL ]
right "the log says what can be done" least "$(said 'lacks the address that the link leaves from')" 1
ip -n 1 addr add fd08::1/64 dev eth1 nodad
ip -n 1 route replace fd07::2 via fd08::2 dev eth1 metric 50
control "the link is up again" wait_up 1 2 10
