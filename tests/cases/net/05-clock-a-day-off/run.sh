#!/usr/bin/env bash
# Nodes 1 - 2 - 3. The clock of node 1 is 30 h off; a minute later it is set right.
. "$CASES/lib/nodes.sh"
gcc -O2 -shared -fPIC -o clock.so "$CASES/net/clock.c" -ldl || broken "clock.c does not compile"
star 1 2 3
keys 1 2 3
link 2 10.9.2.2:7000 | node 1 '"0.0.0.0:7000"'
node 2 '"0.0.0.0:7000"' </dev/null
link 2 10.9.2.2:7000 | node 3 '"0.0.0.0:7000"'

# routed FROM TO
routed() {
    ask routes "$1" --json >routes
    [ "$(field routes "any(r['destination'] == $2 and r['next_hop'] for r in it)")" = True ]
}

# part NAME SECONDS: the clock's error at the start.
part() {
    echo "-- the clock is $1"
    echo "$2" >clock
    up 1 1 LD_PRELOAD="$WORK/clock.so" CLOCK_FILE="$WORK/clock"
    up 2 2
    up 3 3
    linked 1 2
    sleep 3
    right "the log of node 1 mentions its clock" grep -qi clock 1.log
    echo 0 >clock
    sleep 65
    right "node 1 has a route to node 3, a minute after its clock is right" routed 1 3
    right "node 3 has a route to node 1" routed 3 1
    for id in 1 2 3; do down $id; done
    rm -f ./*.log
}

echo 0 >clock
up 1 1 LD_PRELOAD="$WORK/clock.so" CLOCK_FILE="$WORK/clock"
up 2 2
up 3 3
linked 1 2
sleep 3
control "with a right clock, nodes 1 and 3 have routes to each other" eval 'routed 1 3 && routed 3 1'
for id in 1 2 3; do down $id; done
rm -f ./*.log
part "30 h behind" -108000
part "30 h ahead" 108000
