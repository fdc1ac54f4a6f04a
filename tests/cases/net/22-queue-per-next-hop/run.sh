#!/usr/bin/env bash
# Nodes 2, 3 and 4 are next hops of node 1 by one interface, where the kernel has a queue for each.
. "$CASES/lib/nodes.sh"
ip netns add lan
ip -n lan link add lan type bridge
ip -n lan link set lan up
for id in 1 2 3 4; do
    ip netns add $id
    ip -n $id link set lo up
    ip link add eth0 netns $id type veth peer name p$id netns lan
    ip -n lan link set p$id master lan up
    ip -n $id addr add 10.8.0.$id/24 dev eth0
    ip -n $id addr add fd08::$id/64 dev eth0 nodad
    ip -n $id link set eth0 up
done
keys 1 2 3 4
ANY='"0.0.0.0:7000", "[::]:7000"'
for id in 2 3 4; do node $id "$ANY" </dev/null; done

# begin PREFIX: node 1 with links to the others, whose addresses begin so.
begin() {
    for id in 2 3 4; do
        case $1 in *:) link $id "[$1$id]:7000" ;; *) link $id "$1$id:7000" ;; esac
    done | node 1 "$ANY"
    for id in 1 2 3 4; do up $id $id; done
    linked 1 2 3 4
}
finish() { for id in 1 2 3 4; do down $id; done; }

# queues: a queue for each next hop, and one for everything else.
queues() {
    {
        tc -n 1 qdisc add dev eth0 root handle 1: htb default 10
        tc -n 1 class add dev eth0 parent 1: classid 1:10 htb rate 1gbit
        for id in 2 3 4; do
            tc -n 1 class add dev eth0 parent 1: classid 1:2$id htb rate 1gbit
            tc -n 1 qdisc add dev eth0 parent 1:2$id handle 2$id: tbf rate 1gbit burst 100kb limit 8mb
            tc -n 1 filter add dev eth0 parent 1: protocol ip u32 match ip dst 10.8.0.$id/32 flowid 1:2$id
            tc -n 1 filter add dev eth0 parent 1: protocol ipv6 u32 match ip6 dst fd08::$id/128 flowid 1:2$id
        done
    } 2>&1 | grep -v 'quantum of class'
}
# rate ID RATE: how fast what is for that one leaves.
rate() { tc -n 1 qdisc change dev eth0 parent 1:2$1 handle 2$1: tbf rate "$2" burst "${3:-3kb}" limit 8mb; }
sockets() { inside 1 ss -Huan 'sport = :7000' | wc -l; }
# of ID EXPRESSION: a property of node 1's link to that node.
of() { field links "[$2 for l in it if l['neighbour'] == $1][0]"; }
soon() {
    local end=$((SECONDS + $1))
    until [ "$("${@:3}")" = "$2" ]; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.2
    done
}
state() { ask links 1 --json >links; field links '[l["up"] for l in it]'; }
bulk() { flow 1 "$1" "$2" --rate 900 --size 1100 --service best-effort --port 7100; }

# hung PREFIX: what is for node 2 doesn't leave, three times.
hung() {
    echo "-- $1: a next hop's queue stands still"
    queues
    begin "$1"
    local before time
    before=$(sockets)
    flow 1 2 25 --calls 20 --port 7100 >stuck & local stuck=$!
    flow 1 3 25 --calls 4 >other & local other=$!
    flow 1 4 25 --calls 1 >third & local third=$!
    for time in 1 2 3; do
        sleep 3
        rate 2 8bit
        sleep 3
        ask links 1 --json >links
        right "time $time: links says of the link to node 2 that nothing is taken: $(of 2 'l["stalled_s"]') s" above "$(of 2 'l["stalled_s"] or 0')" 2
        right "time $time: of the others it doesn't" [ "$(of 3 'l["stalled_s"]')$(of 4 'l["stalled_s"]')" = NoneNone ]
        rate 2 1gbit 100kb
    done
    wait $stuck $other $third
    echo "calls to the next hop that hangs: $(cat stuck)"
    echo "calls to another next hop: $(cat other)"
    echo "a call to a third: $(cat third)"
    control "the next hop did hang" above "$(missed stuck)" 20
    right "calls to another next hop miss nothing" below "$(missed other)" 0.5
    right "a call to a third misses nothing" below "$(missed third)" 0.5
    ask links 1 --json >links
    right "the links to them never went down" [ "$(of 3 'l["downs"]')$(of 4 'l["downs"]')" = 00 ]
    right "afterwards all links are up" soon 10 '[True, True, True]' state
    right "afterwards there are as many sockets as before: $before" soon 20 "$before" sockets
    right "the log blames no other link" [ "$(grep -c 'neighbour=[34].*takes no\|takes no.*neighbour=[34]' 1.log)" = 0 ]
    flow 1 2 3 --calls 5 --port 7200 >after
    right "calls to the next hop that hung miss nothing" below "$(missed after)" 0.5
    finish
    tc -n 1 qdisc del dev eth0 root
}

# slow RATE: more is sent to node 2 than leaves.
slow() {
    echo "-- a next hop's queue has $1"
    queues
    rate 2 "$1"
    begin 10.8.0.
    flow 1 3 12 --calls 4 >other & local other=$!
    sleep 2
    bulk 2 3 >bulk
    sleep 1
    bulk 2 3 >bulk
    wait $other
    echo "calls to another next hop: $(cat other)"
    control "it is too much for the next hop" above "$(missed bulk)" 20
    right "calls to another next hop miss nothing" below "$(missed other)" 0.5
    finish
    tc -n 1 qdisc del dev eth0 root
}

# one_queue RATE: the interface has that rate, and one queue.
one_queue() {
    echo "-- the interface has $1 and one queue"
    tc -n 1 qdisc add dev eth0 root tbf rate "$1" burst 3kb limit 4mb
    begin 10.8.0.
    flow 1 3 12 --calls 3 >other & local other=$!
    sleep 2
    bulk 4 8 >further & local further=$!
    bulk 2 8 >bulk
    wait $other $further
    echo "calls beside bulk to two others: $(cat other)"
    control "it is too much for the interface" above "$(missed bulk)" 20
    right "calls beside bulk to two others miss little" below "$(missed other)" 1
    finish
    tc -n 1 qdisc del dev eth0 root
}

for part in ${PARTS:-4 6 256kbit 2mbit one}; do
    case $part in
        4) hung 10.8.0. ;;
        6) hung fd08:: ;;
        one) one_queue 2mbit ;;
        *) slow $part ;;
    esac
done
