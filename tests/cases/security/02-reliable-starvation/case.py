"""Reliable datagrams of node 5 alongside a stream and calls of node 1, on a link of 5 Mbit/s."""

from statistics import mean

from attack import Flood, calls_beside, stream_rates
from session import RELIABLE
from verdict import control, finish, right

alone = stream_rates("1", 4, 8)
control(f"alone, the stream fills the link: {alone} Mbit/s", mean(alone[3:]) > 2.5)
for bps in (10e6, 40e6):
    flood = Flood("5", RELIABLE, bps)
    rates = stream_rates("1", 4, 15)
    calls = calls_beside()
    flood.stop()
    # Two sources of traffic: a fair half, less what calls and headers take.
    right(
        f"alongside {bps / 1e6:.0f} Mbit/s of node 5 the stream keeps its half: {rates}",
        mean(rates[5:]) > 1.25,
    )
    right(f"the calls miss nothing ({calls['missed_percent']} %)", calls["missed_percent"] < 1)
finish()
