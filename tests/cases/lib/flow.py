#!/usr/bin/env python3
"""Sends calls from one node's application to another's, and prints as JSON how they arrived.

Both sessions are in this process, so each delay is a true one-way delay.
"""

import argparse
import json
import select
import struct
import time
from typing import Dict, List, Optional

from session import BEST_EFFORT, ERROR, REAL_TIME, RELIABLE, Notice, Received, Session

SERVICES = {"best-effort": BEST_EFFORT, "real-time": REAL_TIME, "reliable": RELIABLE}
HEAD = struct.Struct(">Id")


class Flows:
    """`count` flows of numbered, stamped packets between two nodes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.senders = [Session(options.source) for _ in range(options.calls)]
        self.receivers = [Session(options.destination, options.port + n) for n in range(options.calls)]
        self.sent_at: List[float] = []
        self.delays: List[Dict[int, float]] = [{} for _ in range(options.calls)]
        self.duplicates = self.unsent = 0
        self.notices: Dict[str, int] = {}

    def send(self, now: float) -> None:
        packet = HEAD.pack(len(self.sent_at), now) + b"x" * (self.options.size - HEAD.size)
        for number, sender in enumerate(self.senders):
            to = (self.options.node, self.options.port + number)
            taken = sender.send(to, packet, SERVICES[self.options.service], self.options.deadline)
            self.unsent += not taken
        self.sent_at.append(now)

    def take(self, item: object, number: Optional[int]) -> None:
        if isinstance(item, Notice):
            kind = "error" if item.kind == ERROR else "status"
            self.notices[f"{kind} {item.code}"] = self.notices.get(f"{kind} {item.code}", 0) + 1
        elif isinstance(item, Received) and number is not None:
            packet, stamp = HEAD.unpack(item.payload[: HEAD.size])
            if packet in self.delays[number]:
                self.duplicates += 1
            else:
                self.delays[number][packet] = time.monotonic() - stamp

    def run(self) -> None:
        numbers = {receiver: number for number, receiver in enumerate(self.receivers)}
        start = following = time.monotonic()
        while (now := time.monotonic()) < start + self.options.seconds + 1:
            wait = max(0.0, min(following - now, 0.02))
            for session in select.select(self.receivers + self.senders, [], [], wait)[0]:
                for item in session.receive():
                    self.take(item, numbers.get(session))
            while following <= (now := time.monotonic()) and now < start + self.options.seconds:
                self.send(now)
                following += 1 / self.options.rate

    def gaps(self, deadline: float) -> List[List[float]]:
        """When, and for how long, the first flow was silent for more than 0.2 s."""
        count, begin = len(self.sent_at), self.sent_at[0]
        heard = sorted(number for number, delay in self.delays[0].items() if delay <= deadline)
        pairs = zip([0] + heard, heard + [count - 1])
        spans = [(self.sent_at[a] - begin, self.sent_at[b] - self.sent_at[a]) for a, b in pairs]
        return [[round(at, 2), round(length, 2)] for at, length in spans if length > 0.2]

    def report(self) -> Dict[str, object]:
        deadline = self.options.deadline / 1000
        every = sorted(delay for flow in self.delays for delay in flow.values())
        sent = len(self.sent_at) * self.options.calls
        missed = sent - sum(delay <= deadline for delay in every)

        def quantile(share: float) -> Optional[float]:
            return (
                round(1000 * every[min(len(every) - 1, int(share * len(every)))], 2) if every else None
            )

        return {
            "sent": sent,
            "received": len(every),
            "missed": missed,
            "missed_percent": round(100 * missed / sent, 2),
            "duplicates": self.duplicates,
            "delay_ms": {"median": quantile(0.5), "p99": quantile(0.99), "max": quantile(1)},
            "unsent": self.unsent,
            "notices": self.notices,
            "gaps_s": self.gaps(deadline)[:12],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="session socket of the sending node")
    parser.add_argument("destination", help="session socket of the receiving node")
    parser.add_argument("node", type=int, help="id of the receiving node")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--calls", type=int, default=1)
    parser.add_argument("--rate", type=float, default=50, help="packets a second of each call")
    parser.add_argument("--size", type=int, default=172, help="bytes of a packet")
    parser.add_argument("--service", choices=SERVICES, default="real-time")
    parser.add_argument("--port", type=int, default=6000, help="first virtual port at the receiver")
    parser.add_argument("--deadline", type=int, default=100, help="milliseconds, 1 to 255")
    flows = Flows(parser.parse_args())
    flows.run()
    print(json.dumps(flows.report()))


if __name__ == "__main__":
    main()
