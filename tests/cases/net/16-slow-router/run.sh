#!/usr/bin/env bash
# Host 1 is behind a modem of 2 Mbit/s that queues for a second; streams and calls leave by it.
. "$CASES/lib/nodes.sh"
star 2 3
ip netns add 1
ip netns add modem
ip link add eth0 netns 1 type veth peer name lan netns modem
ip link add wan netns modem type veth peer name r1 netns router
ip -n 1 link set lo up
ip -n 1 addr add 10.7.1.2/24 dev eth0
ip -n 1 link set eth0 up
ip -n 1 route add default via 10.7.1.1
ip -n modem addr add 10.7.1.1/24 dev lan
ip -n modem link set lan up
ip -n modem addr add 10.9.1.2/24 dev wan
ip -n modem link set wan up
ip -n modem route add default via 10.9.1.1
inside modem sysctl -qw net.ipv4.ip_forward=1
ip -n router addr add 10.9.1.1/24 dev r1
ip -n router link set r1 up
ip -n router route add 10.7.1.0/24 via 10.9.1.2
tc -n modem qdisc add dev wan root tbf rate 2mbit burst 3kb limit 250kb
keys 1 2 3
{ link 2 10.9.2.2:7000; link 3 10.9.3.2:7000; } | node 1 '"0.0.0.0:7000"'
for id in 2 3; do node $id '"0.0.0.0:7000"' </dev/null; done
for id in 1 2 3; do up $id $id; done
linked 1 2 3

# transfer TO: a stream for as long as the calls take, which begins before them.
transfer() {
    timeout 30 "$TRUNKLINE" cat --listen 9 --socket "$1.sock" >"arrived.$1" &
    sleep 0.3
    (timeout 25 head -c 20000000 /dev/zero | timeout 25 "$TRUNKLINE" cat --socket 1.sock "$1:9") 2>/dev/null &
}

flow 1 2 5 --calls 3 >alone
echo "calls alone: $(cat alone)"
control "calls alone miss nothing" below "$(missed alone)" 0.5

transfer 2
sleep 3
flow 1 2 16 --calls 3 >same
echo "calls beside a stream on their link: $(cat same)"
right "a stream that was there costs calls on its link little" below "$(missed same)" 1
sleep 8
bytes=$(stat -c %s arrived.2)
echo "the stream got $bytes bytes"
right "the stream gets half of what the calls leave" above "$bytes" 2000000

flow 1 2 20 --calls 3 >other &
calls=$!
sleep 2
transfer 3
wait $calls
echo "calls beside a stream on another link: $(cat other)"
right "a stream on another link of the uplink costs calls little" below "$(missed other)" 1
