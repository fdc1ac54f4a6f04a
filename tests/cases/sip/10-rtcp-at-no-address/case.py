"""RTCP that is named at an address where nothing can be sent."""

from phones import A, B, P, Q, Phone, sdp
from verdict import control, finish, right

p, q = Phone(P, "p", A, namespace="p"), Phone(Q, "q", B, namespace="q")


def passes(offer: str) -> str:
    """How the gateway refuses the call; empty if it passes."""
    p.invite(f"q@{Q}", offer)
    invite = q.receive(
        lambda message: message.method == "INVITE" and message.get("call-id") == p.call, 1
    )
    if invite:
        q.reply(invite, 486)
        return ""
    refusal = p.receive(lambda message: message.code >= 300 and message.get("call-id") == p.call, 0.3)
    return f"{refusal.start} {refusal.get('warning')}" if refusal else "no answer"


control("a=rtcp:4001 passes", not passes(sdp(P, 4000, "a=rtcp:4001\r\n")))
control("hold by c=0.0.0.0 passes", not passes(sdp("0.0.0.0", 4000)))
nowhere = "a=rtcp:4001 IN IP4 0.0.0.0\r\n"
offers = {
    "a=rtcp at 0.0.0.0": sdp(P, 4000, nowhere),
    "a=rtcp at 127.0.0.1": sdp(P, 4000, "a=rtcp:4001 IN IP4 127.0.0.1\r\n"),
    "a=rtcp with a trailing space": sdp(P, 4000, "a=rtcp:4001 \r\n"),
    "an empty a=rtcp": sdp(P, 4000, "a=rtcp:\r\n"),
    "hold, and a=rtcp at 0.0.0.0": sdp("0.0.0.0", 4000, nowhere),
    "port 9 and a=inactive": sdp(P, 9, "a=inactive\r\n"),
}
for name, offer in offers.items():
    refused = passes(offer)
    right(f"{name} passes: {refused or 'it does'}", not refused)
finish()
