"""INVITEs of over 1,000 bytes to a host that drops TCP."""

import time

from phones import A, P, X, Phone, sdp
from verdict import finish, right

p, x = Phone(P, "p", A, namespace="p"), Phone(X, "x", A, namespace="x")
for attempt in ("first", "second"):
    start = time.monotonic()
    p.invite(f"x@{X}", sdp(P, 4000, f"a=x-pad:{'y' * 700}\r\n"))
    invite = x.expect(lambda message: message.get("call-id") == p.call, 40)
    spent = time.monotonic() - start
    right(f"the {attempt} INVITE of {len(p.sent)} bytes takes less than 1 s ({spent:.1f} s)", spent < 1)
    x.reply(invite, 486)
    p.expect(486)
finish()
