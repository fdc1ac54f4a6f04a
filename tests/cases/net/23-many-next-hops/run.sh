#!/usr/bin/env bash
# Nodes 2 to 41 are next hops of node 1 by one interface. Three of them have a queue each there.
# Nodes 42 and 43 have a link of their own. A call over it shows whether the machine keeps up.
. "$CASES/lib/nodes.sh"
need python3
LAST=41
APART=(42 43)
QUEUES=(41 20 2)

ip netns add 1
ip netns add others
ip link add eth0 netns 1 type veth peer name eth0 netns others
for space in 1 others; do
    ip -n $space link set lo up
    ip -n $space link set eth0 up
done
ip -n 1 addr add 10.8.0.1/24 dev eth0
for id in $(seq 2 $LAST) "${APART[@]}"; do echo "addr add 10.8.0.$id/24 dev eth0"; done | ip -n others -batch -

# shellcheck disable=SC2046  # one argument a node
keys $(seq 1 $LAST) "${APART[@]}"
for id in $(seq 2 $LAST); do HTTP="127.0.0.1:$((9100 + id))" node "$id" "\"10.8.0.$id:7000\"" </dev/null; done
HTTP=127.0.0.1:9142 node 42 '"10.8.0.42:7000"' </dev/null
link 42 10.8.0.42:7000 | HTTP=127.0.0.1:9143 node 43 '"10.8.0.43:7000"'
for id in $(seq 2 $LAST); do link "$id" "10.8.0.$id:7000"; done | node 1 '"10.8.0.1:7000"'

{
    tc -n 1 qdisc add dev eth0 root handle 1: htb default 100
    tc -n 1 class add dev eth0 parent 1: classid 1:100 htb rate 1gbit
    for id in "${QUEUES[@]}"; do
        tc -n 1 class add dev eth0 parent 1: classid "1:2$id" htb rate 1gbit
        tc -n 1 qdisc add dev eth0 parent "1:2$id" handle "2$id:" tbf rate 1gbit burst 100kb limit 8mb
        tc -n 1 filter add dev eth0 parent 1: protocol ip u32 match ip dst "10.8.0.$id/32" flowid "1:2$id"
    done
} 2>&1 | grep -v 'quantum of class'

# hang ID..., release ID...: what is for these nodes doesn't leave; leaves again.
hang() { for id; do tc -n 1 qdisc change dev eth0 parent "1:2$id" handle "2$id:" tbf rate 8bit burst 3kb limit 8mb; done; }
release() { for id; do tc -n 1 qdisc change dev eth0 parent "1:2$id" handle "2$id:" tbf rate 1gbit burst 100kb limit 8mb; done; }
sockets() { inside 1 ss -Huan 'sport = :7000' | wc -l; }
all_up() { ask links 1 --json 2>/dev/null >links && [ "$(field links 'all(l["up"] for l in it)')" = True ]; }
as_before() { [ "$(sockets)" = "$before" ]; }
within() {
    local end=$((SECONDS + $1))
    until "${@:2}"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.2
    done
}
# worst NODE...: the most that a call to any other node has missed, in percent.
worst() { field missed "max(v for k, v in it.items() if int(k) not in ($(printf '%s,' 43 "$@")))"; }
of() { field missed "it['$1']"; }

up 1 1
for id in $(seq 2 $LAST) "${APART[@]}"; do up "$id" others; done
control "all forty links are up" within 30 all_up
control "nodes 42 and 43 are linked" wait_up 43 42 10
before=$(sockets)

for ids in 41 20 2 "41 20"; do
    read -ra hung <<<"$ids"
    python3 "$CASES/net/23-many-next-hops/calls.py" $LAST 12 >missed & calls=$!
    sleep 4
    hang "${hung[@]}"
    sleep 3
    ask links 1 --json >links
    release "${hung[@]}"
    wait $calls
    for id in "${hung[@]}"; do control "node $id did hang: its call missed $(of "$id") %" above "$(of "$id")" 10; done
    control "the machine keeps up: a call over a link apart missed $(of 43) %" below "$(of 43)" 0.5
    blamed=$(field links "sorted(l['neighbour'] for l in it if (l['stalled_s'] or 0) > 1)")
    right "node $ids: calls to others miss nothing, $(worst "${hung[@]}") % at most" below "$(worst "${hung[@]}")" 0.5
    right "node $ids: links says of no other that it takes nothing: $blamed" \
        [ "$blamed" = "[$(printf '%s\n' "${hung[@]}" | sort -n | paste -sd, | sed 's/,/, /g')]" ]
done
ask links 1 --json >links
right "links to others never went down" \
    [ "$(field links 'sum(l["downs"] for l in it if l["neighbour"] not in (41, 20, 2))')" = 0 ]
right "afterwards all links are up" within 10 all_up
right "afterwards there are as many sockets as before: $before" within 20 as_before
