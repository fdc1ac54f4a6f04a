# shellcheck shell=bash
# Sourced by cases with nodes of their own: a star of network namespaces, and nodes in them.
# Everything is in the current folder, the case's scratch folder. `ip netns` names are private
# to the case (see ../run), and everything in them ends with it.
. "$CASES/lib/case.sh"

# star ID...: a router with 10.9.ID.1, and hosts with 10.9.ID.2 and fd09:ID::2 on eth0.
star() {
    local id
    ip netns add router
    ip -n router link set lo up
    inside router sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
    for id; do
        ip netns add "$id"
        ip -n "$id" link set lo up
        ip link add eth0 netns "$id" type veth peer name "r$id" netns router
        ip -n "$id" addr add "10.9.$id.2/24" dev eth0
        ip -n "$id" addr add "fd09:$id::2/64" dev eth0 nodad
        ip -n "$id" link set eth0 up
        ip -n router addr add "10.9.$id.1/24" dev "r$id"
        ip -n router addr add "fd09:$id::1/64" dev "r$id" nodad
        ip -n router link set "r$id" up
        ip -n "$id" route add default via "10.9.$id.1"
        ip -n "$id" -6 route add default via "fd09:$id::1"
    done
}

# second_line: another interface between hosts 1 and 3: eth1 with 10.8.0.ID and fd08::ID.
second_line() {
    local id
    ip link add eth1 netns 1 type veth peer name eth1 netns 3
    for id in 1 3; do
        ip -n $id addr add "10.8.0.$id/24" dev eth1
        ip -n $id addr add "fd08::$id/64" dev eth1 nodad
        ip -n $id link set eth1 up
    done
}

inside() { ip netns exec "$@"; }

# firewall NAMESPACE: lets in only what belongs to what was sent.
firewall() {
    inside "$1" nft -f - <<'END'
table ip firewall {
    chain input {
        type filter hook input priority 0; policy drop;
        iif lo accept
        ct state established,related accept
    }
}
END
}

# keys ID...: an overlay key, and key and certificate of each node.
keys() {
    local id
    [ -f overlay.key ] || "$TRUNKLINE" keygen overlay.key >overlay.pub 2>/dev/null || broken "keygen failed"
    for id; do
        "$TRUNKLINE" keygen "$id.key" >"$id.pub" 2>/dev/null
        "$TRUNKLINE" certify --overlay-key overlay.key --node "$id" --name "n$id" --key "$(cat "$id.pub")" \
            "$id.cert" >/dev/null || broken "certify failed"
    done
}

# node ID LISTEN: writes ID.toml; standard input has further lines, the first ones of [overlay].
node() {
    cat - >further
    cat >"$1.toml" <<END
[node]
id = $1
name = "n$1"
key = "$WORK/$1.key"
certificate = "$WORK/$1.cert"
listen = [$2]
socket = "$WORK/$1.sock"
control = "$WORK/$1.ctl"
http = "${HTTP:-127.0.0.1:9101}"
[overlay]
keys = ["$(cat overlay.pub)"]
END
    cat further >>"$1.toml"
}

# link NEIGHBOUR ADDRESS: lines for a node's file.
link() { printf '[[link]]\nneighbour = %s\naddress = "%s"\n' "$1" "$2"; }

# up ID NAMESPACE [VARIABLE=VALUE]...: starts a node; `-` is the case's own namespace.
up() {
    local enter=()
    [ "$2" = - ] || enter=(ip netns exec "$2")
    "${enter[@]}" env "${@:3}" "$TRUNKLINE" node --config "$1.toml" >>"$1.log" 2>&1 &
    echo $! >"$1.pid"
}

# down ID [SIGNAL]
down() {
    kill -"${2:-TERM}" "$(cat "$1.pid")"
    wait "$(cat "$1.pid")" 2>/dev/null
}

# ask COMMAND ID [ARGUMENT]...: a command about a running node.
ask() { timeout 10 "$TRUNKLINE" "$1" --control "$2.ctl" "${@:3}"; }

# is_up ID NEIGHBOUR
is_up() {
    ask links "$1" --json 2>/dev/null | python3 -c '
import json, sys
sys.exit(not any(l["neighbour"] == int(sys.argv[1]) and l["up"] for l in json.load(sys.stdin)))' "$2" 2>/dev/null
}

# wait_up ID NEIGHBOUR SECONDS
wait_up() {
    local end=$((SECONDS + $3))
    until is_up "$1" "$2"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}

# linked ID NEIGHBOUR...: a control.
linked() {
    local neighbour
    for neighbour in "${@:2}"; do
        control "node $1 has a link to node $neighbour" wait_up "$1" "$neighbour" 10
    done
}

# flow FROM TO SECONDS [OPTION]...: lib/flow.py.
flow() { python3 "$CASES/lib/flow.py" "$1.sock" "$2.sock" "$2" "$3" "${@:4}"; }

# missed FILE: percentage of packets that did not arrive in time; FILE is what flow printed.
missed() { field "$1" 'it["missed_percent"]'; }
