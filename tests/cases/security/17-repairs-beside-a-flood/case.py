"""Floods of node 5 alongside calls of node 1, on a link of 6 Mbit/s that loses 8 %."""

from attack import Flood, ask, calls_beside
from session import REAL_TIME
from verdict import control, finish, right

RATE = 6e6


def missed(port: int) -> float:
    return calls_beside(12, port, calls=6, deadline=255)["missed_percent"]


alone = missed(8600)
lost = max(link["loss_out"] or 0 for link in ask("links", "2") if link["neighbour"] == 4)
control(f"the link loses packets: {100 * lost:.1f} %", 0.03 < lost < 0.2)
control(f"alone, most of what the link loses is repaired: {alone} % missed", alone < 2)
for number, times in enumerate((0.9, 1.2, 2, 3)):
    flood = Flood("5", REAL_TIME, times * RATE)
    beside = missed(8700 + 10 * number)
    flood.stop()
    right(
        f"alongside a flood of {times} × the link's rate the calls miss {beside} %, {alone} alone",
        beside <= alone + 0.5,
    )
finish()
