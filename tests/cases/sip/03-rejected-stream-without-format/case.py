"""A rejected stream without a format, in an answer and in an offer."""

from phones import A, B, P, Q, Media, Phone, connect, hang_up, sdp, talk
from verdict import finish, right

p, q = Phone(P, "p", A, namespace="p"), Phone(Q, "q", B, namespace="q")
p_media, q_media = Media(P, 4000, "p"), Media(Q, 4002, "q")

video = "m=video 4010 RTP/AVP 99\r\na=rtpmap:99 H264/90000\r\n"
answered, invite = connect(p, q, sdp(P, 4000, video), sdp(Q, 4002, "m=video 0 RTP/AVP\r\n"))
right(f"the answer has a description ({len(answered.body)} bytes)", answered.body)
heard = talk(p_media, answered.media(), q_media, invite.media())
right(f"p and q hear {heard} of 25", min(heard) >= 20)
hang_up(p, q)

p.invite(f"q@{Q}", sdp(P, 4000, "m=image 0 udptl\r\n"))
refusal = p.receive(lambda message: message.code >= 300, 2)
right(
    f"the same in an offer passes: {refusal.start if refusal else 'no refusal'}", q.receive("INVITE", 2)
)
finish()
