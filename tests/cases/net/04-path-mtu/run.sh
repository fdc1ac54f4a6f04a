#!/usr/bin/env bash
# One hop of the path has an MTU of 1200, less than the link's 1280; routers say so, or don't.
. "$CASES/lib/nodes.sh"
star 1 2
keys 1 2
for id in 1 2; do
    { link $((3 - id)) "10.9.$((3 - id)).2:7000"; } | node $id '"0.0.0.0:7000"'
    { cat $id.toml; printf '[[trunk]]\nto = %s\n' $((3 - id)); } >trunk-$id.toml
done
ip -n router link set r2 mtu 1200
ip -n 2 link set eth0 mtu 1200

part() {
    up 1 1
    up 2 2
    linked 1 2
    flow 1 2 4 >small
    echo "a call: $(cat small)"
    control "a call misses nothing" below "$(missed small)" 0.5
    flow 1 2 4 --size 1180 >large
    echo "packets of 1180 bytes: $(cat large)"
    # A session that knows a smaller largest packet is told so (error 7).
    right "large packets arrive, or are refused" \
        below "$(field large 'it["missed"] - it["notices"].get("error 7", 0)')" 3
    "$TRUNKLINE" cat --listen 9 --socket 2.sock >got & local listener=$!
    sleep 0.3
    head -c 1000000 /dev/urandom >want
    timeout 75 "$TRUNKLINE" cat --socket 1.sock 2:9 <want
    sleep 1
    kill $listener 2>/dev/null
    right "a stream of 1 MB arrives whole ($(stat -c %s got) bytes did)" cmp -s want got
    right "the log names the path's MTU" grep -qi 'mtu' 1.log
    down 1
    down 2
    rm -f ./*.log
}

echo "-- routers report the MTU"
part
echo "-- routers report nothing"
inside router nft -f - <<'END'
table ip firewall {
    chain output {
        type filter hook output priority 0;
        icmp type destination-unreachable drop
    }
}
END
part

echo "-- calls in a trunk"
inside router nft flush ruleset
for id in 1 2; do
    mv trunk-$id.toml $id.toml
    up $id $id
done
linked 1 2
sleep 2
for calls in 20 30; do
    flow 1 2 5 --calls $calls >trunk
    echo "$calls calls in a trunk: $(cat trunk)"
    right "$calls calls in a trunk miss nothing" below "$(missed trunk)" 0.5
done
