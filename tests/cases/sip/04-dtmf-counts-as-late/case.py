"""A clean call with twelve digits of 240 ms, by telephone-event packets (RFC 4733)."""

import struct
import time

from phones import A, B, P, Q, Media, Phone, connect, hang_up, leg, rtp, sdp
from verdict import control, finish, right

p, q = Phone(P, "p", A, namespace="p"), Phone(Q, "q", B, namespace="q")
media = Media(P, 4000, "p")
answered, _ = connect(p, q, sdp(P, 4000), sdp(Q, 4002))
target = answered.media()
for digit in range(12):
    media.send(target, 25)
    for number in range(12):  # all with one timestamp, the end three times
        event = struct.pack("!BBH", digit, 0x80 if number > 8 else 10, min(number + 1, 10) * 160)
        packet = rtp(media.number, media.stamp, media.source, 101, event, marker=number == 0)
        media.socket.sendto(packet, target)
        media.number += 1
        time.sleep(0.02)
    media.stamp += 1920
time.sleep(1.2)
said = leg(p.call)
print({key: said[key] for key in ("packets", "lost", "late", "jitter_ms", "r", "mos")})
control("nothing is lost", said["lost"] == 0)
right(f"no packet counts as late ({said['late']} do)", said["late"] <= 3)
right(f"the call's MOS is that of a clean one ({said['mos']})", said["mos"] > 4)
hang_up(p, q)
finish()
