#!/usr/bin/env bash
# A network that delays some packets more than others, or doubles them, but loses none.
. "$CASES/lib/nodes.sh"
gcc -O2 -o mangle "$CASES/net/mangle.c" || broken "mangle.c does not compile"
keys 1 2
for id in 1 2; do
    other=$((3 - id))
    link $other "127.0.0.1:71$other$other" | HTTP=127.0.0.1:910$id node $id "\"127.0.0.1:700$id\""
done

# part VERDICT NAME OPTION...: options of mangle.
part() {
    local verdict=$1
    echo "-- $2"
    ./mangle 7122 127.0.0.1:7001 7111 127.0.0.1:7002 "${@:3}" & local mangle=$!
    up 1 -
    up 2 -
    linked 1 2
    sleep 2
    flow 1 2 20 --calls 5 >calls
    ask links 1 --json >links
    local loss
    loss=$(field links '100 * max(l[k] or 0 for l in it for k in ("loss_in", "loss_out"))')
    echo "calls: $(cat calls)"
    control "calls miss nothing" below "$(missed calls)" 1
    $verdict "no loss is reported ($loss %)" below "$loss" 1
    kill $mangle
    wait $mangle 2>/dev/null
    down 1
    down 2
}

part control plain delay=10
part right "20 % are 5 ms late" delay=10 late=0.2 late_by=5
part right "20 % are 25 ms late" delay=10 late=0.2 late_by=25
part control "all are doubled" delay=10 double=1
part right "0 to 30 ms of jitter" delay=10 jitter=30
