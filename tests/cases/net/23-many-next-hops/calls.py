"""A call from node 1 to each of the nodes 2 to LAST, and one from node LAST + 1 to node LAST + 2, that
shares only the machine with them; prints as JSON what each missed in percent, by the called node."""

import json
import select
import struct
import sys
import time

from session import REAL_TIME, Received, Session

LAST, SECONDS, INTERVAL, DEADLINE_MS, PORT = int(sys.argv[1]), float(sys.argv[2]), 0.02, 100, 6000
HEAD = struct.Struct(">Id")


def main() -> None:
    nodes = [*range(2, LAST + 1), LAST + 2]
    caller = {node: 1 for node in nodes} | {LAST + 2: LAST + 1}
    sender = {node: Session(f"{caller[node]}.sock") for node in nodes}
    receiver = {Session(f"{node}.sock", PORT): node for node in nodes}
    sent = dict.fromkeys(nodes, 0)
    in_time = dict.fromkeys(nodes, 0)
    start = time.monotonic()
    # Calls don't begin at one moment: their packets are spread over the interval.
    due = [(start + INTERVAL * number / len(nodes), node) for number, node in enumerate(nodes)]
    while (now := time.monotonic()) < start + SECONDS + 1:
        wait = min(0.005, max(0.0, due[0][0] - now)) if now < start + SECONDS else 0.02
        for session in select.select(list(receiver), [], [], wait)[0]:
            for item in session.receive():
                if isinstance(item, Received):
                    delay = time.monotonic() - HEAD.unpack(item.payload[: HEAD.size])[1]
                    in_time[receiver[session]] += delay <= DEADLINE_MS / 1000
        while due[0][0] <= (now := time.monotonic()) < start + SECONDS:
            at, node = due.pop(0)
            due.append((at + INTERVAL, node))
            packet = HEAD.pack(sent[node], now) + bytes(160)
            sender[node].send((node, PORT), packet, REAL_TIME, DEADLINE_MS)
            sent[node] += 1
    print(json.dumps({node: round(100 * (1 - in_time[node] / sent[node]), 2) for node in nodes}))


main()
