#!/usr/bin/env bash
# Nodes 1 and 2 have two lines, eth0 behind a router and eth1; links of node 1 have a `source`.
. "$CASES/lib/nodes.sh"
need nft
star 1 2
ip link add eth1 netns 1 type veth peer name eth1 netns 2
for id in 1 2; do
    ip -n $id addr add "10.8.0.$id/24" dev eth1
    ip -n $id addr add fd08::$id/64 dev eth1 nodad
    ip -n $id link set eth1 up
done
keys 1 2
ANY='"0.0.0.0:7000", "[::]:7000"'

# of ID EXPRESSION: a property of the node's only link.
of() {
    ask links "$1" --json >links
    field links "[$2 for l in it][0]"
}
# soon SECONDS COMMAND...: whether the command succeeds within that time.
soon() {
    local end=$((SECONDS + $1))
    until "${@:2}"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.2
    done
}
is() { [ "$(of "$1" "$2" 2>/dev/null)" = "$3" ]; }
said() { grep -q "$2" "$1.log"; }
down_both() {
    down 1
    down 2
    rm -f 1.log 2.log
}

# Node 2 calls by IPv4, where the link used to be; node 1 has moved it to IPv6.
link 1 10.9.1.2:7000 | node 2 "$ANY"
{ link 2 "[fd08::2]:7000"; echo 'source = "fd08::1"'; } | node 1 "$ANY"
up 2 2
sleep 1
up 1 1
linked 1 2
sleep 3
for time in 1 2; do
    right "start $time: the link of node 1 is by IPv6" is 1 'l["address"]' "[fd08::2]:7000"
    right "start $time: so is that of node 2" is 2 'l["address"]' "[fd08::1]:7000"
    down 2
    up 2 2
    sleep 4
    linked 1 2
done
right "the log says that a call came by another path" said 1 'other_path.*another own address'
down_both

# The source is nowhere, and node 2 calls another address.
{ link 2 10.9.2.2:7000; echo 'source = "10.8.0.77"'; } | node 1 "$ANY"
up 2 2
sleep 1
up 1 1
right "a source that is missing: links says so within 10 s" soon 12 is 1 '(l["send_error"] or {"lasts": False})["lasts"] and l["send_error"]["error"]' EADDRNOTAVAIL
right "so does the log" soon 6 said 1 'lacks the address that the link leaves from'
sleep 12
right "and links says so later" is 1 '(l["send_error"] or {"lasts": False})["lasts"]' True
ip -n 1 addr add 10.8.0.77/24 dev eth1
ip -n 2 route add 10.8.0.77 dev eth1
ip -n 1 rule add from 10.8.0.77 table 8
ip -n 1 route add 10.9.2.2 via 10.8.0.2 dev eth1 table 8
right "the address comes, and the link is up" wait_up 1 2 10
right "the log says that packets leave again" soon 8 said 1 'packets leave again'
down_both

# Another machine has the source.
ip -n 2 addr add fd08::9/64 dev eth1 nodad
sleep 1
ip -n 1 addr add fd08::9/64 dev eth1
{ link 2 "[fd08::2]:7000"; echo 'source = "fd08::9"'; } | node 1 "$ANY"
sleep 3
control "the kernel has found that" ip -n 1 -6 addr show dadfailed dev eth1
up 2 2
up 1 1
right "a source of another machine: links says so within 10 s" soon 12 is 1 '(l["send_error"] or {"lasts": False})["lasts"] and l["send_error"]["error"]' EADDRINUSE
right "so does the log" soon 6 said 1 'another machine on the network has the address'
ip -n 1 addr del fd08::9/64 dev eth1
down_both

# A reload moves a link that is up to the other line, and node 2 knows only where it was.
ip -n 2 addr add 10.7.7.2/32 dev lo
ip -n router route add 10.7.7.2 via 10.9.2.2
ip -n 1 route add 10.7.7.2 via 10.8.0.2 dev eth1 table 8
ip -n 1 rule add from 10.8.0.1 table 8
node 2 "$ANY" </dev/null
{ link 2 10.7.7.2:7000; echo 'source = "10.8.0.1"'; } | node 1 "$ANY"
up 2 2
up 1 1
linked 1 2
right "node 2 has the first source" soon 8 is 2 'l["address"]' 10.8.0.1:7000
sed -i 's/^source = .*/source = "10.9.1.2"/' 1.toml
ask reload 1 >/dev/null
right "node 2 follows the link to the other one" soon 8 is 2 'l["address"]' 10.9.1.2:7000
right "the link didn't go down" is 1 'l["downs"]' 0
# Back, but nothing comes back by that line.
inside 1 nft -f - <<'END'
table ip lost { chain input { type filter hook input priority 0; ip daddr 10.8.0.1 udp dport 7000 drop; }; }
END
sed -i 's/^source = .*/source = "10.8.0.1"/' 1.toml
ask reload 1 >/dev/null
right "packets still come by the old line: links says so" soon 12 is 1 'l["arrives_at"]' 10.9.1.2
right "so does the log" soon 6 said 1 'packets arrive at 10.9.1.2'
inside 1 curl -s http://127.0.0.1:9101/metrics >metrics
right "so does the metric" grep -q 'link_arrives_elsewhere.* 1' metrics
inside 1 nft delete table ip lost
right "once they come by the new one, that is over" soon 8 is 1 'l["arrives_at"]' None
