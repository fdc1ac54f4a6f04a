"""Media from another source than the description names."""

import sys
import time
from typing import Tuple

from phones import A, B, P, Q, X, Media, Message, Phone, connect, hang_up, sdp, talk
from verdict import control, finish, right

p, q = Phone(P, "p", A, namespace="p"), Phone(Q, "q", B, namespace="q")
named, another, third = Media(P, 4000, "p"), Media(P, 4100, "p"), Media(X, 4000, "x")
other = Media(Q, 4002, "q")


def call(address: str = P) -> Tuple[Message, Message]:
    return connect(p, q, sdp(address, 4000), sdp(Q, 4002))


def usual() -> None:
    answered, invite = call()
    heard = talk(named, answered.media(), other, invite.media())
    control(f"from the named port p and q hear {heard} of 25", min(heard) >= 20)
    hang_up(p, q)

    answered, invite = call("10.0.0.9")
    talk(named, answered.media(), other, invite.media())
    talk(another, answered.media(), other, invite.media())
    time.sleep(6)
    heard = talk(another, answered.media(), other, invite.media())
    right(f"6 s after a NAT gave another port p and q hear {heard} of 25", min(heard) >= 20)
    hang_up(p, q)


def phones() -> None:
    answered, invite = call()
    named.drain()
    _, sent = talk(another, answered.media(), other, invite.media())
    back = len(named.drain())
    right(f"p sends from 4100 and listens at 4000: q hears {sent}, p {back} of 25", min(sent, back) >= 20)
    hang_up(p, q)

    answered, invite = call()
    _, sent = talk(third, answered.media(), other, invite.media())
    right(f"p's media come from another host: q hears {sent} of 25", sent >= 20)
    hang_up(p, q)


{"usual": usual, "phones": phones}[sys.argv[1]]()
finish()
