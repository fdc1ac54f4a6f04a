"""A member that is not on a stream's path ends it, by a reset for each of the 65,536 tags."""

import random
import time

from attack import Stream, ask
from member import Member, reset
from verdict import control, finish, right

BROKEN_OFF = 11
member = Member()
survived = 0
for _ in range(3):
    stream = Stream("1", 4, 980)
    stream.write(1000, 0.5)
    time.sleep(1)
    found = [item for item in ask("streams", "4") if item["port"] == 980 and item["state"] == "open"]
    control("there is one stream", len(found) == 1 and stream.is_alive())
    tags = list(range(65536))
    random.shuffle(tags)
    start = time.monotonic()
    for count, tag in enumerate(tags, 1):
        member.segment((1, found[0]["peer_port"]), (4, 980), tag, reset(BROKEN_OFF))
        if count % 400 == 0:
            wait = time.monotonic() + 1
            while member.behind() > 1200 and time.monotonic() < wait:
                time.sleep(0.001)
            if not stream.is_alive():
                break
    time.sleep(0.5)
    survived += stream.is_alive()
    state = "lives" if stream.is_alive() else "is broken off"
    print(f"{count} resets in {time.monotonic() - start:.1f} s: the stream {state}", flush=True)
    stream.close()
right(f"{survived} of 3 streams survive", survived == 3)
finish()
