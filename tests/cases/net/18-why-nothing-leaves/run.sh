#!/usr/bin/env bash
# Node 1 has two links to one address, by eth0 and by eth1; eth1 gets one fault after the other.
. "$CASES/lib/nodes.sh"
star 1 2
ip link add eth1 netns 1 type veth peer name eth1 netns 2
for id in 1 2; do
    ip -n $id addr add "10.8.0.$id/24" dev eth1
    ip -n $id link set eth1 up
done
ip -n 2 addr add 10.7.7.2/32 dev lo
ip -n router route add 10.7.7.2 via 10.9.2.2
ip -n 1 route add 10.7.7.2 via 10.9.1.1 dev eth0 metric 100
ip -n 1 route add 10.7.7.2 via 10.8.0.2 dev eth1 metric 200
keys 1 2
for line in fibre:eth0 lte:eth1; do
    link 2 10.7.7.2:7000
    printf 'path = "%s"\ninterface = "%s"\n' "${line%:*}" "${line#*:}"
done | node 1 '"0.0.0.0:7000"'
node 2 '"0.0.0.0:7000"' </dev/null
up 2 2
up 1 1
linked 1 2

# of PATH EXPRESSION: a property of node 1's link by that path.
of() {
    ask links 1 --json >links
    field links "[$2 for l in it if l['path'] == '$1'][0]"
}
both_up() { [ "$(of fibre 'l["up"]') $(of lte 'l["up"]')" = "True True" ]; }
up_both() { within 15 both_up; }
errors() { of "$1" '(l["send_error"] or {"count": 0})["count"]'; }
why() { of "$1" '(l["send_error"] or {"error": None})["error"]'; }
said() { grep -c "$1" 1.log; }
least() { [ "$1" -ge "$2" ]; }
# within SECONDS COMMAND...: whether it succeeds within that time.
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt "$end" ] || return 1
        sleep 0.2
    done
}
ended() { least "$(said "packets leave again.*path=\"$1\"")" "$2"; }

refuse() {
    inside 1 nft -f - <<'END'
table ip refuses { chain output { type filter hook output priority 0; oifname eth1 udp dport 7000 drop; }; }
END
}
control "both links are up" up_both

before=0
for time in 1 2; do
    refuse
    sleep 5
    right "failure $time: EPERM is at the link that has it" [ "$(why lte)" = EPERM ]
    right "failure $time: the log says what can be done" least "$(said 'a firewall of this machine.*path="lte"')" $time
    inside 1 nft delete table ip refuses
    control "both links are up again" up_both
    sleep 2
    count=$(errors lte)
    right "failure $time: the count has grown to $count" least "$count" $((before + 1))
    before=$count
    # Two seconds without an error, one to see whether another trouble follows, and one between two looks.
    right "failure $time: the log says that it has ended" within 6 ended lte $time
    sleep 4
done

right "the other link has no error" [ "$(errors fibre)" = 0 ]

# The far end of eth1 neither answers nor asks by ARP.
for time in 1 2; do
    ip -n 2 link set eth1 arp off
    ip -n 1 neigh flush dev eth1
    sleep 8
    right "time $time: links names the next hop that is silent" [ "$(of lte 'l["silent_next_hop"]')" = 10.8.0.2 ]
    inside 1 curl -s http://127.0.0.1:9101/metrics | grep 'link_stalled_seconds.*lte' >metric
    stalled=$(awk '{print $2}' metric)
    right "time $time: the metric says that it takes nothing for $stalled s" above "$stalled" 2
    right "time $time: that is this time alone" below "$stalled" 9
    right "time $time: the log says what can be done" least "$(said 'ip neigh show 10.8.0.2.*path="lte"')" $time
    right "time $time: the other link doesn't wait" [ "$(of fibre 'l["silent_next_hop"]')" = None ]
    ip -n 2 link set eth1 arp on
    control "both links are up again" up_both
    sleep 2
done
right "the count of $before hasn't fallen: $(errors lte)" least "$(errors lte)" "$before"
down 1

# Over IPv6 the kernel prefers a route by eth2 to the interface of the link.
ip link add eth2 netns 1 type veth peer name eth2 netns 2
for id in 1 2; do
    ip -n $id addr add fd08::$id/64 dev eth1 nodad
    ip -n $id addr add fd06::$id/64 dev eth2 nodad
    ip -n $id link set eth2 up
done
ip -n 2 addr add fd07::2/128 dev lo nodad
for id in 1 2; do ip -n $id -6 route del default; done
ip -n 1 route add fd07::2 via fd06::2 dev eth2 metric 100
ip -n 1 route add fd07::2 via fd08::2 dev eth1 metric 200
down 2
node 2 '"0.0.0.0:7000", "[fd07::2]:7000"' </dev/null
up 2 2
for line in fibre:eth2 lte:eth1; do
    link 2 "[fd07::2]:7000"
    printf 'path = "%s"\ninterface = "%s"\n' "${line%:*}" "${line#*:}"
done | node 1 '"[::]:7000"'
up 1 1
linked 1 2
control "both links are up" up_both
sent() { ip -n 1 -s -j link show dev eth2 | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["stats64"]["tx"]["packets"])'; }
sleep 2
healthy=$(sent)
sleep 4
healthy=$(($(sent) - healthy))
for time in 1 2; do
    ip -n 1 route del fd07::2 via fd08::2 dev eth1 metric 200
    sleep 3
    elsewhere=$(sent)
    sleep 4
    elsewhere=$(($(sent) - elsewhere))
    right "time $time: without a route by eth1 no more leaves by eth2: $elsewhere packets, $healthy before" \
        below $elsewhere $((healthy * 3 / 2))
    right "time $time: links has the reason" [ "$(of lte '(l["send_error"] or {"lasts": False})["lasts"] and l["send_error"]["error"]')" = ENETUNREACH ]
    ip -n 1 route add fd07::2 via fd08::2 dev eth1 metric 200
    control "both links are up again" up_both
    sleep 4
done
right "the log says what can be done" least "$(said 'there is no route.*path="lte"')" 2
down 1

# One link with a source and a policy route, whose interface goes down.
{ link 2 10.7.7.2:7000; echo 'source = "10.8.0.1"'; } | node 1 '"0.0.0.0:7000"'
ip -n 1 route add 10.7.7.2 via 10.8.0.2 dev eth1 table 7
ip -n 1 rule add from 10.8.0.1 table 7
up 1 1
linked 1 2
for time in 1 2; do
    ip -n 1 link set eth1 down
    sleep 4
    why=$(of '' '[l["leaves_by"], (l["send_error"] or {"error": None})["error"]]')
    right "its interface is down, time $time: links has a reason: $why" [ "$why" != "[None, None]" ]
    right "the log has it" least "$(said 'leaves by .* but its source is an address of eth1')" $time
    sleep 8
    ip -n 1 link set eth1 up
    ip -n 1 route replace 10.7.7.2 via 10.8.0.2 dev eth1 table 7
    ip -n 1 route replace 10.7.7.2 via 10.8.0.2 dev eth1 metric 200
    control "the link is up again" wait_up 1 2 15
    sleep 2
done
