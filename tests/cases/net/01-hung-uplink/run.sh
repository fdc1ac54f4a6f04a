#!/usr/bin/env bash
# Node 1 has two uplinks. That to node 2 takes nothing for 12 s and drops nothing either.
. "$CASES/lib/nodes.sh"
star 1 2 3
second_line
keys 1 2 3

# part NAME ADDRESS-OF-3 HANG RESUME
part() {
    echo "-- $1"
    { link 2 10.9.2.2:7000; link 3 "$2"; } | node 1 '"0.0.0.0:7000", "[::]:7000"'
    for id in 2 3; do node $id '"0.0.0.0:7000", "[::]:7000"' </dev/null; done
    for id in 1 2 3; do up $id $id; done
    linked 1 2 3
    flow 1 2 25 --calls 20 --port 7100 >hung & local hung=$!
    flow 1 3 25 --calls 5 >other & local other=$!
    sleep 5
    $3
    sleep 8
    ask links 1 --json >during
    sleep 4
    $4
    wait $hung $other
    echo "calls over the uplink that hangs: $(cat hung)"
    echo "calls over the other uplink: $(cat other)"
    control "the uplink to node 2 did hang" above "$(missed hung)" 20
    right "calls over the other uplink miss nothing" below "$(missed other)" 0.5
    local stalled
    stalled=$(field during '[l["stalled_s"] or 0 for l in it if l["neighbour"] == 2][0]')
    right "after 8 s links says that the interface takes nothing, for $stalled s" above "$stalled" 5
    local downs
    ask links 1 --json >links
    downs=$(field links '[l["downs"] for l in it if l["neighbour"] == 3][0]')
    right "the link to node 3 never went down (it did $downs times)" below "$downs" 1
    for id in 1 2 3; do down $id; done
}

queue_fills() { tc -n 1 qdisc add dev eth0 root tbf rate 8bit burst 2kb limit 8mb; }
queue_drains() { tc -n 1 qdisc del dev eth0 root; }
gateway_gone() {
    # A host also learns the gateway's address from the gateway's own requests: it needs to send none.
    ip -n router neigh replace 10.9.1.2 lladdr "$(inside 1 cat /sys/class/net/eth0/address)" dev r1
    inside router sysctl -qw net.ipv4.conf.r1.arp_ignore=8
    ip -n 1 neigh flush dev eth0
}
gateway_back() { inside router sysctl -qw net.ipv4.conf.r1.arp_ignore=0; }

part "its queue stands still, the other uplink is IPv4" 10.8.0.3:7000 queue_fills queue_drains
part "its queue stands still, the other uplink is IPv6" "[fd08::3]:7000" queue_fills queue_drains
part "its gateway answers no ARP" 10.8.0.3:7000 gateway_gone gateway_back
