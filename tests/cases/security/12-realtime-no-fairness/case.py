"""Floods of node 5 alongside calls of node 1, on a link of 5 Mbit/s."""

from attack import Flood, calls_beside
from session import BEST_EFFORT, REAL_TIME
from verdict import control, finish, right

alone = calls_beside()
control(f"alone, the calls miss nothing ({alone['missed_percent']} %)", alone["missed_percent"] < 1)
for name, service, bps in (
    ("best effort", BEST_EFFORT, 10e6),
    ("real time", REAL_TIME, 10e6),
    ("real time", REAL_TIME, 6e6),
):
    flood = Flood("5", service, bps)
    calls = calls_beside(port=8700)
    flood.stop()
    right(
        f"alongside {bps / 1e6:.0f} Mbit/s of {name} the calls miss {calls['missed_percent']} %",
        calls["missed_percent"] < 1,
    )
finish()
