"""Reliable datagrams of one application alongside a stream of another at the same node."""

from statistics import mean

from attack import Flood, calls_beside, stream_rates
from session import RELIABLE
from verdict import control, finish, right

alone = stream_rates("1", 4, 8)
control(f"alone, the stream fills the link: {alone} Mbit/s", mean(alone[3:]) > 2.5)
flood = Flood("1", RELIABLE, 6e6)
rates = stream_rates("1", 4, 10)
calls = calls_beside()
flood.stop()
right(
    f"alongside 6 Mbit/s of another application the stream keeps its half: {rates}",
    mean(rates[3:]) > 1.25,
)
right(f"the calls miss nothing ({calls['missed_percent']} %)", calls["missed_percent"] < 1)
finish()
