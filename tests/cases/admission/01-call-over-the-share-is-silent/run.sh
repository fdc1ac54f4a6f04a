#!/usr/bin/env bash
# Gateways a and b, with a lossy path of 100 ms between them, a trunk with `admit = "share"`
# each, and so many calls in it that it exceeds its share.
. "$CASES/lib/nodes.sh"
loss=2% calls=30

for host in 1 2 11 12; do ip addr add "10.77.0.$host/24" dev lo; done
for name in a b; do "$TRUNKLINE" keygen $name.key >$name.pub 2>/dev/null || broken "keygen failed"; done

# gateway NAME ID ADDRESS VIA-PORT OTHER OTHER-ID OTHER-ADDRESS OTHER-PHONE
gateway() {
    cat >"$1.toml" <<END
[node]
id = $2
name = "$1"
key = "$1.key"
listen = ["$3:7000"]
control = "$1.ctl"
socket = "$1.sock"
[[link]]
neighbour = $6
key = "$(cat "$5.pub")"
address = "$3:$4"
[[trunk]]
to = $6
wait = "2ms"
multiplex = "tfmc"
admit = "share"
[sip]
listen = ["udp:$3:5060"]
allow = ["10.77.0.0/24"]
trust = ["$7"]
[[sip.route]]
to = "$8"
via = "udp:$7:5060"
END
}

gateway a 1 10.77.0.1 7103 b 2 10.77.0.2 10.77.0.12
gateway b 2 10.77.0.2 7104 a 1 10.77.0.1 10.77.0.11
"$TRUNKLINE" impair --a 10.77.0.1:7103=10.77.0.1:7000 --b 10.77.0.2:7104=10.77.0.2:7000 \
    --delay 100ms --loss $loss >impair.log 2>&1 &
for name in a b; do up $name -; done
linked a 2
python3 "$(dirname "$0")/case.py" before || exit 2
for number in $(seq $calls); do
    "$TRUNKLINE" call recv --socket b.sock --port $((6000 + number)) >/dev/null 2>&1 &
done
sleep 1
for number in $(seq $calls); do
    "$TRUNKLINE" call send --socket a.sock --to 2:$((6000 + number)) --duration 22s "$REPOSITORY/speech/en-allison.wav" >/dev/null 2>&1 &
done
exceeds() {
    ask status a --json >status
    [ "$(field status 'it["trunks"][0]["trunk_over_share"]')" = True ]
}
# The share follows from the loss that is measured, which takes a while to show.
end=$((SECONDS + 12))
sleep 5
until exceeds || [ $SECONDS -gt $end ]; do sleep 0.2; done
control "the trunk exceeds its share" exceeds
by python3 "$(dirname "$0")/case.py" beside
