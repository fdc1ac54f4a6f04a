# shellcheck shell=bash
# Sourced by each case of this family.
. "$CASES/lib/nodes.sh"

# overlay [LINES-OF-LINK-2-TO-4]: nodes 1 - 2 - 4 and 1 - 3 - 4, with a trunk from 1 to 4, and
# nodes 5 and 9 with keys only, which may attach to 2. Node N is at 127.0.0.1:2700N.
overlay() {
    local id
    keys 1 2 3 4 5 9
    { link 2 127.0.0.1:27002; link 3 127.0.0.1:27003; printf '[[trunk]]\nto = 4\n'; } | listed 1
    { link 1 127.0.0.1:27001; link 4 127.0.0.1:27004; echo "${1:-}"; } | listed 2
    { link 1 127.0.0.1:27001; link 4 127.0.0.1:27004; } | listed 3
    { link 2 127.0.0.1:27002; link 3 127.0.0.1:27003; } | listed 4
    link 2 127.0.0.1:27002 | listed 5
    for id in 1 2 3 4; do up $id -; done
    linked 1 2 3
    linked 4 2 3
    sleep 1
}

# listed ID: node at port 2700ID; standard input has its links.
listed() { HTTP=127.0.0.1:2910$1 node "$1" "\"127.0.0.1:2700$1\""; }

# gateway NAME ID ADDRESS PHONE OTHER OTHER-ID OTHER-ADDRESS OTHER-PHONE [LISTEN]
gateway() {
    cat >"$1.toml" <<END
[node]
id = $2
name = "site-$1"
key = "$WORK/$1.key"
listen = ["$3:7000"]
control = "$WORK/$1.ctl"
socket = "$WORK/$1.sock"
http = "$3:9101"
[[link]]
neighbour = $6
key = "$(cat "$5.pub")"
address = "$7:7000"
[sip]
listen = ["udp:$3:5060", "tcp:$3:5060"${9:-}]
allow = ["10.77.1.0/24", "fd77::/64"]
trust = ["$7"]
[[sip.route]]
to = "$8"
via = "udp:$7:5060"
END
}

# gateways: a (10.77.0.1) and b (10.77.0.2); phones in 10.77.1.0/24, of which 10.77.1.1 is at a
# and 10.77.1.2 at b; 10.77.2.1 and 10.78.0.9 are outside.
gateways() {
    local name host
    for host in 10.77.0.1 10.77.0.2 10.77.2.1 10.78.0.9 $(seq -f 10.77.1.%g 40); do
        ip addr add "$host/32" dev lo
    done
    for host in 1 2 3 4 11 99; do ip addr add "fd77::$host/128" dev lo nodad; done
    for name in a b; do "$TRUNKLINE" keygen $name.key >$name.pub 2>/dev/null || broken "keygen failed"; done
    gateway a 1 10.77.0.1 10.77.1.1 b 2 10.77.0.2 10.77.1.2 ', "udp:[fd77::11]:5060"'
    gateway b 2 10.77.0.2 10.77.1.2 a 1 10.77.0.1 10.77.1.1
    for name in a b; do up $name -; done
    sleep 2.5
    for name in a b; do control "gateway $name runs" kill -0 "$(cat $name.pid)"; done
}

# judge: the verdicts of the case's case.py.
judge() { by python3 "$(dirname "$0")/case.py"; }
