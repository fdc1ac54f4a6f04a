"""A phone that names a private address in its description: as caller, and as callee."""

from phones import A, B, P, Q, Media, Phone, connect, hang_up, sdp, talk
from verdict import control, finish, right

PRIVATE = "10.0.0.8"
p, q = Phone(P, "p", A, namespace="p"), Phone(Q, "q", B, namespace="q")
p_media, q_media = Media(P, 4000, "p"), Media(Q, 4002, "q")
# The private addresses and ports, as seen from outside a NAT.
p_outside, q_outside = Media(P, 41000, "p"), Media(Q, 41000, "q")

answered, invite = connect(p, q, sdp(PRIVATE, 6000), sdp(Q, 4002))
heard = talk(p_outside, answered.media(), q_media, invite.media())
control(f"the caller names a private address: p and q hear {heard} of 25", min(heard) >= 20)
hang_up(p, q)

answered, invite = connect(p, q, sdp(P, 4000), sdp(PRIVATE, 6000))
heard = talk(p_media, answered.media(), q_outside, invite.media())
right(f"the callee names a private address: p and q hear {heard} of 25", min(heard) >= 20)
hang_up(p, q)
finish()
