"""Three addresses of one IPv6 /64 take all of max_calls."""

import time
from typing import Dict

from attack import short_invite
from phones import udp
from verdict import control, finish, right

GATEWAY = ("fd77::11", 5060)


def calls(address: str, count: int) -> Dict[str, int]:
    """Requests calls to where nothing answers: how many are taken (no reply but 100), or refused."""
    phone = udp(address, 5070)
    phone.setblocking(False)
    codes: Dict[str, int] = {}
    for number in range(count + 1):
        if number < count:
            phone.sendto(short_invite((address, 5070), "sip:x@[fd77::99]:9"), GATEWAY)
        time.sleep(0.001 if number < count else 0.5)
        try:
            while True:
                code = phone.recv(9999).split()[1].decode()
                codes[code] = codes.get(code, 0) + 1
        except BlockingIOError:
            pass
    print(address, codes, flush=True)
    return codes


first = calls("fd77::1", 520)
control("one address gets no more than its share", first.get("503", 0) > 0)
refused = [calls(f"fd77::{host}", 520).get("503", 0) for host in (2, 3)]
right(f"further addresses of the /64 get no share of their own (refused: {refused} of 520)", min(refused) >= 510)
finish()
