#!/usr/bin/env bash
# Neighbours that are configured by name.
. "$CASES/lib/nodes.sh"
star 1 2 3 4
ip link add eth1 netns 1 type veth peer name eth1 netns 4
for id in 1 4; do
    ip -n $id addr add "fe80::$id/64" dev eth1 nodad
    ip -n $id link set eth1 up
done
keys 1 2 3 4
hosts() {
    printf '127.0.0.1 localhost\n' >hosts
    printf '%s\n' "$@" >>hosts
}
hosts "10.9.99.2 relay.example" "10.9.2.2 relay.example"
touch resolv
mount --bind hosts /etc/hosts || broken "cannot replace /etc/hosts"
mount --bind resolv /etc/resolv.conf || broken "cannot replace /etc/resolv.conf"

{
    link 2 relay.example:7000
    link 3 later.example:7000
    link 4 '[fe80::4%eth1]:7000'
} | node 1 '"0.0.0.0:7000", "[::]:7000"'
for id in 2 3 4; do node $id '"0.0.0.0:7000", "[::]:7000"' </dev/null; done
for id in 1 2 3 4; do up $id $id; done

right "the second address of the name is tried" wait_up 1 2 10
right "a link-local address has an interface by name" wait_up 1 4 10
error_of() {
    ask links 1 --json >links
    field links "[l['lookup_error'] for l in it if l['neighbour'] == $1][0] or ''"
}
reason() { [ -n "$(error_of 3)" ]; }
for _ in 1 2 3 4 5 6 7 8 9 10; do
    reason && break
    sleep 1
done
right "links says that a name leads nowhere" reason
right "links shows the name" test "$(field links '[l["host"] for l in it if l["neighbour"] == 3][0]')" = later.example:7000
hosts "10.9.99.2 relay.example" "10.9.2.2 relay.example" "10.9.3.2 later.example"
right "a name that comes later is found" wait_up 1 3 15
right "a link that is up has no error of a lookup" test -z "$(error_of 3)"

# The relay moves to another address, and its name follows.
down 2
ip -n 2 addr del 10.9.2.2/24 dev eth0
ip -n 2 addr add 10.9.2.77/24 dev eth0
ip -n 2 route add default via 10.9.2.1
hosts "10.9.2.77 relay.example" "10.9.3.2 later.example"
sleep 1
up 2 2
right "a relay that moves is found by its name" wait_up 1 2 15

# The file has another name.
sed -i 's/later.example/third.example/' 1.toml
ask reload 1 --json >reloaded || broken "the file is refused"
right "a changed name is taken over" test "$(field reloaded 'len(it["applied"])')" = 1
