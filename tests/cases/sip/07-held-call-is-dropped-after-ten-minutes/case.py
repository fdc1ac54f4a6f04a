"""A call that is on hold by agreement, one that falls silent, and one whose gateway stops."""

import os
import signal
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
time.sleep(20)

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

p.invite(f"q@{Q}", sdp(P, 4000))
q.reply(q.expect("INVITE"), 200, sdp(Q, 4002))
p.established(p.expect(200))
q.expect("ACK")
start = time.monotonic()
heard = [bool(p.receive("BYE", 20)), bool(q.receive("BYE", 3))]
spent = time.monotonic() - start
right(f"a silent call is ended at both ends {heard}, after {spent:.0f} s", all(heard) and 11 < spent < 20)

connect(p, q, sdp(P, 4000), sdp(Q, 4002))
with open("a.pid") as file:
    os.kill(int(file.read()), signal.SIGTERM)
heard = [bool(p.receive("BYE", 3)), bool(q.receive("BYE", 3))]
right(f"both ends hear of a call whose gateway stops: {heard}", all(heard))
finish()
