"""A phone behind a NAT describes a new port, while a packet of the old stream is on its way."""

import time

from phones import A, B, P, Q, Media, Phone, connect, hang_up, invite_again, sdp, talk
from verdict import control, finish, right

p, q = Phone(P, "p", A, namespace="p"), Phone(Q, "q", B, namespace="q")
# p's two sockets, as seen from outside its NAT.
old, new = Media(P, 40000, "p"), Media(P, 50000, "p")
other = Media(Q, 4002, "q")

answered, invite = connect(p, q, sdp("10.0.0.9", 4000), sdp(Q, 4002))
heard = talk(old, answered.media(), other, invite.media())
control(f"before: p and q hear {heard} of 25", min(heard) >= 20)

answered, invite = invite_again(p, q, sdp("10.0.0.9", 5000, version=2), sdp(Q, 4002))
old.send(answered.media(), 1)
p.ack()
q.expect("ACK")
heard = talk(new, answered.media(), other, invite.media())
right(f"after: p and q hear {heard} of 25", min(heard) >= 20)
time.sleep(5)
heard = talk(new, answered.media(), other, invite.media())
right(f"5 s later: p and q hear {heard} of 25", min(heard) >= 20)
hang_up(p, q)
finish()
