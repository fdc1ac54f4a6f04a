"""One datagram forged in a trusted gateway's name sends a call's media to an overlay port."""

import time

from attack import GATEWAY_B, forge
from phones import Answering, request, sdp, token
from session import Received, Session
from verdict import finish, right

# The attribute by which gateways recognise each other (docs/protocol.md, section 14.6).
ATTRIBUTE = "a=x-trunkline:1 1 45000\r\n"
callee = Answering("10.77.1.2", 5064, 20700)
application = Session("a.sock", 45000)
reached = 0
for _ in range(5):
    call = token()
    body = sdp("10.77.0.1", 30000, ATTRIBUTE)
    forge(
        ("10.77.0.1", 5060),
        GATEWAY_B,
        request("INVITE", "sip:q@10.77.1.2:5064", ("10.77.0.1", 5060), call, body=body),
    )
    time.sleep(0.4)
    invites = [m for m in callee.received if m.method == "INVITE" and m.get("call-id") == call]
    if not invites:
        print("the callee gets no INVITE")
        continue
    callee.media.send(invites[0].media(), 10, payload=b"secret" * 20)
    time.sleep(0.3)
    reached += any(
        isinstance(item, Received) and b"secret" in item.payload for item in application.receive()
    )
right(
    f"the callee's media reach an application at node 1 by {reached} of 5 forged datagrams", reached == 0
)
finish()
