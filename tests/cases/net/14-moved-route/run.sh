#!/usr/bin/env bash
# A relay with two lines is called at its first address; its default route moves to the second line.
. "$CASES/lib/nodes.sh"
star 1 2
ip link add eth1 netns 2 type veth peer name second netns router
ip -n router addr add 10.8.2.1/24 dev second
ip -n router link set second up
ip -n 2 addr add 10.8.2.2/24 dev eth1
ip -n 2 link set eth1 up
keys 1 2
firewall 1
# The relay listens at every address, and doesn't know where the site is.
link 2 10.9.2.2:7000 | node 1 '"0.0.0.0:7000"'
node 2 '"0.0.0.0:7000"' </dev/null
up 1 1
up 2 2
linked 1 2
linked 2 1

flow 2 1 8 >back &
call=$!
sleep 3
ip -n 2 route replace default via 10.8.2.1 dev eth1
wait $call
right "the call goes on" below "$(missed back)" 0.1
right "the link has stayed up" is_up 1 2

# A restart of the caller finds the relay again.
down 1
sleep 1
up 1 1
right "the restarted caller gets answers" wait_up 1 2 5

# Without a firewall: in a call the route moves back, and then the address that was called goes.
inside 1 nft delete table ip firewall
flow 2 1 12 >back & back=$!
flow 1 2 12 >forth & forth=$!
sleep 3
ip -n 2 route replace default via 10.9.2.1 dev eth0
sleep 3
ip -n 2 route replace default via 10.8.2.1 dev eth1
ip -n 2 addr del 10.9.2.2/24 dev eth0
sleep 3
ask links 1 --json >links
control "the link leads to the other address" grep -q '10\.8\.2\.2:7000' links
ip -n 2 addr add 10.9.2.2/24 dev eth0
wait $back $forth
for way in back forth; do
    echo "$way: $(cat $way)"
    right "$way, no gap is longer than a second" below "$(field $way 'max([g[1] for g in it["gaps_s"]], default=0)')" 1
done
right "afterwards the link is up" wait_up 1 2 5
