"""A user floods its node from 200 sessions; another user's call and the user's own share."""

import json
import os
import subprocess
import time

from session import ERROR, Notice, Received, Session
from verdict import control, finish, right

SECONDS, SESSIONS = 5, 200
OVER_RATE = 16


def flood(until: float) -> None:
    """Runs as a process of another user, and ends with status 0 if it was told."""
    os.setuid(1001)
    sessions = [Session("1.sock") for _ in range(SESSIONS)]
    told = 0
    while time.monotonic() < until:
        for session in sessions:
            session.send((2, 900), bytes(160))
            told += sum(item == Notice(ERROR, OVER_RATE) for item in session.receive())
        time.sleep(0.01)
    os._exit(0 if told > SESSIONS else 1)


greedy, called = Session("2.sock", 900), Session("2.sock", 901)
start = time.monotonic()
child = os.fork()
if child == 0:
    flood(start + SECONDS)
other = os.fork()
if other == 0:
    os.setuid(1002)
    caller = Session("1.sock")
    for k in range(50 * SECONDS):
        caller.send((2, 901), bytes(160))
        time.sleep(max(0, start + 0.02 * k - time.monotonic()))
    os._exit(0)
arrived = {greedy: 0, called: 0}
while time.monotonic() < start + SECONDS + 1:
    for session in arrived:
        arrived[session] += sum(isinstance(item, Received) for item in session.receive())
    time.sleep(0.005)
was_told = os.waitpid(child, 0)[1] == 0
control("the caller sent its call", os.waitpid(other, 0)[1] == 0)
status = subprocess.run(
    [os.environ["TRUNKLINE"], "status", "--json", "--control", "1.ctl"], stdout=subprocess.PIPE, check=True
)
counted = json.loads(status.stdout)["drops"].get("over_rate", 0)
# 1 Mbit/s are 538 packets of 160 bytes with 72 bytes of headers.
right(f"the flooding user sent no more than its rate: {arrived[greedy]}", arrived[greedy] <= 540 * SECONDS + 150)
right(f"it was told, and {counted} packets are counted", was_told and counted > 1000)
right(f"the other user's call is whole: {arrived[called]} of {50 * SECONDS}", arrived[called] == 50 * SECONDS)
finish()
