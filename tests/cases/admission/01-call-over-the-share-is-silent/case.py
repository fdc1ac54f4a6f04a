"""A phone's call over a trunk: before others fill it, and alongside them."""

import sys

from phones import Media, Phone, sdp
from verdict import control, finish, right

CALLER, CALLEE = "10.77.0.11", "10.77.0.12"
PACKETS = 150
p, q = Phone(CALLER, "p", "10.77.0.1"), Phone(CALLEE, "q", "10.77.0.2")
sender, receiver = Media(CALLER, 4000), Media(CALLEE, 4000)

p.invite(f"q@{CALLEE}", sdp(CALLER, 4000))
invite = q.receive("INVITE", 6)
if invite:
    q.reply(invite, 200, sdp(CALLEE, 4000))
final = p.expect(lambda message: message.code >= 200, 8)
heard = 0
if final.code == 200:
    p.established(final)
    sender.send(final.media(), PACKETS)
    q.receive(None, 0.5)
    heard = len(receiver.drain())
if sys.argv[1] == "before":
    control(f"q hears {heard} of {PACKETS} packets", heard > 0.8 * PACKETS)
    sys.exit()
right(
    f"the call is refused, or q hears it: {final.start}, {heard} of {PACKETS} packets",
    final.code >= 300 or heard > 0.8 * PACKETS,
)
finish()
