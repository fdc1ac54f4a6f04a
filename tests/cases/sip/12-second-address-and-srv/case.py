"""Calls to names whose first address is dead, and to names that have SRV records alone."""

import time

from phones import P, Q, X, Phone, sdp
from verdict import finish, right

p, q = Phone(P, "p", X, 5080, namespace="p"), Phone(Q, "q", X, namespace="q")
# srv.example's target is q, too, at port 5070.
srv = Phone(Q, "q", X, 5070, namespace="q")
for name, callee in (("pbx.example", q), ("srv.example", srv)):
    start = time.monotonic()
    p.invite(f"q@{name}", sdp(P, 4000))
    invite = callee.receive("INVITE", 36)
    spent = time.monotonic() - start
    refusal = None if invite else p.receive(lambda m: m.code >= 300 and m.get("call-id") == p.call, 1)
    text = (
        f"after {spent:.0f} s"
        if invite
        else f"no; the caller is told {refusal.start if refusal else 'nothing'}"
    )
    right(f"an INVITE to {name} arrives within 10 s: {text}", invite and spent < 10)
    if invite:
        callee.reply(invite, 486)
finish()
