"""The same through a real NAT: the phone sends from its old socket until the 200 reaches it."""

import threading
import time

from phones import A, B, Q, Media, Phone, connect, hang_up, invite_again, sdp, talk
from verdict import control, finish, right

INSIDE = "10.0.0.9"
p, q = Phone(INSIDE, "p", A, namespace="n"), Phone(Q, "q", B, namespace="q")
other = Media(Q, 4002, "q")


def part(delay_ms: int) -> None:
    """`delay_ms` is half a round trip between phone and gateway."""
    old, new = Media(INSIDE, 4000, "n"), Media(INSIDE, 5000, "n")
    answered, invite = connect(p, q, sdp(INSIDE, 4000), sdp(Q, 4002))
    target = answered.media()
    heard = talk(old, target, other, invite.media())
    control(f"half a round trip of {delay_ms} ms: before, p and q hear {heard} of 25", min(heard) >= 20)
    stop = threading.Event()

    def keep_talking() -> None:
        while not stop.is_set():
            old.send(target, 1)

    talking = threading.Thread(target=keep_talking)
    talking.start()
    answered, invite = invite_again(p, q, sdp(INSIDE, 5000, version=2), sdp(Q, 4002))
    time.sleep(delay_ms / 1000)
    stop.set()
    talking.join()
    p.ack()
    q.expect("ACK")
    heard = talk(new, answered.media(), other, invite.media())
    right(f"after the re-INVITE p and q hear {heard} of 25", min(heard) >= 20)
    hang_up(p, q)
    old.socket.close()
    new.socket.close()


for delay_ms in (0, 5, 20):
    part(delay_ms)
finish()
