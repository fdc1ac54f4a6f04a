#!/usr/bin/env bash
# A host with two providers: two links to one neighbour, each to leave by its own provider.
. "$CASES/lib/nodes.sh"
keys 1 2

# file LISTEN: two links, paths a and b, to the same address.
file() {
    node 1 "$1" < <(for path in a b; do link 2 203.0.113.2:7000; echo "path = \"$path\""; done)
}

# check: whether 1.toml is accepted; a wrong file gives status 2.
check() {
    local status=0
    "$TRUNKLINE" check 1.toml >said 2>&1 || status=$?
    cat said
    [ $status = 2 ] && return 1
    return $status
}

node 2 '"0.0.0.0:7000"' </dev/null
cp 2.toml 1.toml
control "a plain file is accepted" check
file '"192.0.2.1:7000", "198.51.100.1:7000"'
right "each provider's address may be listened at" check
file '"0.0.0.0:7000"'
check
right "two links by the same path are refused, or warned of" grep -qiE 'warn|same' said
