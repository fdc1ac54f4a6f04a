"""A callee outside `allow` that only rings uses the dialog; then an unknown host floods."""

import multiprocessing
import time
from typing import Tuple

from attack import GATEWAY_A
from phones import Answering, Phone, request, sdp, udp
from verdict import control, finish, right

OUTSIDE = "10.78.0.9"


def relayed() -> int:
    """How many of five requests of the outsider reach an inside host."""
    Answering(OUTSIDE, rings=True)
    caller = Phone("10.77.1.1", "x", GATEWAY_A[0], 5067)
    caller.invite(f"q@{OUTSIDE}", sdp("10.77.1.1", 21067))
    caller.expect(180)
    inside, attacker = udp("10.77.1.39", 5353), udp(OUTSIDE, 5099)
    inside.settimeout(1)
    count = 0
    for number in range(5):
        attacker.sendto(
            request(
                "NOTIFY",
                "sip:z@10.77.1.39",
                (OUTSIDE, 5099),
                caller.call,
                "any",
                caller.tag,
                10 + number,
                headers=[("Route", "<sip:10.77.1.39:5353;lr>")],
                sender=f"sip:q@{OUTSIDE}",
                to="sip:x@10.77.1.1",
            ),
            GATEWAY_A,
        )
        try:
            count += inside.recv(9999).startswith(b"NOTIFY")
        except TimeoutError:
            pass
    return count


def flood(seconds: float, address: str) -> None:
    sender, message = udp(address, 0), request("OPTIONS", "sip:x@10.77.0.1", (address, 5060))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(200):
            sender.sendto(message, GATEWAY_A)


def answered(count: int) -> Tuple[int, float]:
    """How many of `count` requests are answered within 0.1 s, and the longest wait in ms."""
    phone = udp("10.77.1.37", 0)
    phone.settimeout(0.1)
    replies, longest = 0, 0.0
    for _ in range(count):
        start = time.monotonic()
        phone.sendto(request("OPTIONS", "sip:x@10.77.0.1", phone.getsockname()), GATEWAY_A)
        try:
            phone.recv(999)
            replies += 1
            longest = max(longest, time.monotonic() - start)
        except TimeoutError:
            pass
        time.sleep(max(0.0, start + 0.1 - time.monotonic()))
    return replies, round(1000 * longest, 1)


count = relayed()
right(f"an inside host gets {count} of 5 requests of a callee that only rings", count == 0)
count, longest = answered(20)
control(f"an allowed phone is answered {count} of 20 times, within {longest} ms", count == 20)
attack = multiprocessing.Process(target=flood, args=(4, "10.77.2.1"))
attack.start()
time.sleep(0.5)
count, longest = answered(25)
attack.join()
right(
    f"alongside a flood of an unknown host it is answered {count} of 25 times, within {longest} ms",
    count >= 24,
)
finish()
