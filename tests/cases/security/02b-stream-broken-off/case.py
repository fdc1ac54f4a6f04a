"""A stream of 100 kbit/s of node 1 under 6 Mbit/s of reliable datagrams of node 5, for 85 s."""

import time

from attack import Flood, Stream
from session import RELIABLE
from verdict import control, finish, right

stream = Stream("1", 4, 951)
stream.write(1250, 0.1)
time.sleep(3)
control(f"the stream flows: {stream.received} bytes", stream.received > 20_000)
before = stream.received
flood = Flood("5", RELIABLE, 6e6)
start, silent = time.monotonic(), 0.0
while time.monotonic() < start + 85 and stream.is_alive():
    time.sleep(0.5)
    silent = max(silent, time.monotonic() - stream.heard)
spent, alive = time.monotonic() - start, stream.is_alive()
flood.stop()
right(f"the stream is not broken off (after {spent:.0f} s)", alive)
right(f"it is never silent for 5 s (it was for {silent:.1f} s)", silent < 5)
rate = (stream.received - before) * 8 / spent / 1000
right(f"it keeps its 100 kbit/s ({rate:.0f})", rate > 80)
stream.close()
finish()
