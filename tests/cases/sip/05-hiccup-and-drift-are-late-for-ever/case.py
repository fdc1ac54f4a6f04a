"""One pause of 80 ms, and a sender whose clock is 5,000 ppm slow."""

import time
from typing import Any, Dict

from phones import A, B, P, Q, Media, Phone, connect, hang_up, leg, sdp
from verdict import control, finish, right

p, q = Phone(P, "p", A, namespace="p"), Phone(Q, "q", B, namespace="q")
media = Media(P, 4000, "p")


def shown(when: str) -> Dict[str, Any]:
    said = leg(p.call)
    print(when, {key: said[key] for key in ("packets", "lost", "late", "r_now", "mos")}, flush=True)
    return said


# A busy machine may spoil a call before it has begun, which is the fault itself.
for attempt in range(5):
    answered, _ = connect(p, q, sdp(P, 4000), sdp(Q, 4002))
    media.send(answered.media(), 150)
    if (r_now := shown(f"call {attempt}, 3 s of good speech:")["r_now"]) > 80:
        break
    hang_up(p, q)
control("3 s of good speech are good", r_now > 80)
time.sleep(0.08)
media.send(answered.media(), 300)
right("6 s after a pause of 80 ms the call is good", shown("after a pause:")["r_now"] > 80)
hang_up(p, q)

answered, _ = connect(p, q, sdp(P, 4000), sdp(Q, 4002))
media.send(answered.media(), 15 * 50, interval=0.0201)  # 75 ms behind at its end
right("a slow clock costs nothing", shown("15 s of a slow clock:")["r_now"] > 80)
hang_up(p, q)
finish()
