"""A call that is on hold for 640 s by agreement: no RTP, no SIP."""

import time

from phones import A, B, P, Q, Media, Phone, connect, hang_up, invite_again, records, sdp, talk
from verdict import control, finish, right

p, q = Phone(P, "p", A, namespace="p"), Phone(Q, "q", B, namespace="q")
p_media, q_media = Media(P, 4000, "p"), Media(Q, 4002, "q")
answered, invite = connect(p, q, sdp(P, 4000), sdp(Q, 4002))
heard = talk(p_media, answered.media(), q_media, invite.media())
control(f"p and q hear {heard} of 25", min(heard) >= 20)

hold = "a=inactive\r\n"
invite_again(p, q, sdp(P, 4000, hold, version=2), sdp(Q, 4002, hold))
p.ack()
q.expect("ACK")
print("held for 640 s from", time.strftime("%T"), flush=True)
time.sleep(640)

told = bool(p.receive("BYE", 0.5)), bool(q.receive("BYE", 0.5))
heard = talk(p_media, answered.media(), q_media, invite.media())
right(f"p and q hear {heard} of 25, or both received a BYE {told}", min(heard) >= 20 or all(told))
if not any(told):
    answered, invite = invite_again(p, q, sdp(P, 4000, version=3), sdp(Q, 4002))
    p.ack()
    q.expect("ACK")
    heard = talk(p_media, answered.media(), q_media, invite.media())
    control(f"after a re-INVITE p and q hear {heard} of 25", min(heard) >= 20)
    hang_up(p, q)
time.sleep(1.5)
ends = [record["outcome"] for record in records(p.call)]
right(f'the call has one record, which isn\'t "idle": {ends}', len(ends) == 1 and ends != ["idle"])
finish()
