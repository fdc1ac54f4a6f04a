"""A clean call with twelve digits of 240 ms, by telephone-event packets (RFC 4733)."""

import struct
import time

from phones import A, B, P, Q, Media, Phone, connect, hang_up, leg, rtp, sdp
from verdict import control, finish, right

p, q = Phone(P, "p", A, namespace="p"), Phone(Q, "q", B, namespace="q")
media = Media(P, 4000, "p")
answered, _ = connect(p, q, sdp(P, 4000), sdp(Q, 4002))
target = answered.media()
begin, sent = time.monotonic(), 0


def pace() -> None:
    """Waits until the next packet is due by one clock, so that a late one makes no other late."""
    global sent
    sent += 1
    time.sleep(max(0.0, begin + 0.02 * sent - time.monotonic()))


for digit in range(12):
    for _ in range(25):
        media.send_one(target)
        pace()
    for number in range(12):  # all with one timestamp, the end three times
        event = struct.pack("!BBH", digit, 0x80 if number > 8 else 10, min(number + 1, 10) * 160)
        packet = rtp(media.number, media.stamp, media.source, 101, event, marker=number == 0)
        media.socket.sendto(packet, target)
        media.number += 1
        pace()
    media.stamp += 1920
time.sleep(1.2)
said = leg(p.call)
print({key: said[key] for key in ("packets", "lost", "late", "jitter_ms", "r", "mos")})
control("nothing is lost", said["lost"] == 0)
right(f"no packet counts as late ({said['late']} do)", said["late"] <= 3)
right(f"the call's MOS is that of a clean one ({said['mos']})", said["mos"] > 4)
hang_up(p, q)
finish()
