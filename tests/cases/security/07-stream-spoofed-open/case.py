"""A member opens a stream in the name of node 1, and its data reach the application at once."""

import os
import signal
import subprocess
import time

from attack import TRUNKLINE, pid_of
from member import Member, first_data, open_request
from verdict import finish, right

LINE = b"run: something\n"
member, believed = Member(), 0
for attempt in range(6):
    receiver = subprocess.Popen(
        [TRUNKLINE, "cat", "--listen", "950", "--socket", "4.sock", "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(0.25)
    source, tag = (1, 62100 + attempt), 0x4111 + attempt
    # Stands for a round trip of 60 ms to node 1, which would reset the stream.
    os.kill(pid_of("1"), signal.SIGSTOP)
    member.segment(source, (4, 950), tag, open_request())
    time.sleep(0.02)
    member.segment(source, (4, 950), tag, first_data(LINE))
    time.sleep(0.04)
    os.kill(pid_of("1"), signal.SIGCONT)
    try:
        said, _ = receiver.communicate(timeout=1)
    except subprocess.TimeoutExpired:
        receiver.kill()
        said, _ = receiver.communicate()
    believed += said == LINE
right(
    f"the application believes the data of {believed} of 6 streams that node 1 did not open",
    believed == 0,
)
finish()
