"""A member's packets from many ports evict an honest flow from a UDP proxy."""

import socket
import subprocess
import threading
import time
from typing import List, Tuple

from attack import TRUNKLINE
from member import BEST_EFFORT, Member
from session import Received, Session
from verdict import control, finish, right

member = Member()
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
# A burst of 300 packets fills the usual buffer, and honest requests were lost in it.
SO_RCVBUFFORCE = 33
server.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
server.bind(("127.0.0.1", 45990))
ports: List[int] = []


def answer() -> None:
    while True:
        data, source = server.recvfrom(999)
        if data.startswith(b"honest"):
            ports.append(source[1])
            server.sendto(data, source)


threading.Thread(target=answer, daemon=True).start()
proxy = subprocess.Popen(
    [TRUNKLINE, "proxy", "--socket", "4.sock", "4:991", "udp:127.0.0.1:45990"],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
)
time.sleep(0.5)
client = Session("1.sock")


def measure(seconds: float, forged: int) -> Tuple[int, int, int]:
    """Requests, replies, and source ports that the server saw; `forged` packets with each request."""
    ports.clear()
    start, requests, replies, port = time.monotonic(), 0, 0, 0
    while time.monotonic() < start + seconds:
        client.send((4, 991), b"honest%d" % requests, BEST_EFFORT)
        requests += 1
        for _ in range(forged):
            member.data(BEST_EFFORT, (9, 20000 + port % 4000), (4, 991), 1, b"x")
            port += 1
        time.sleep(0.08)
        replies += sum(isinstance(item, Received) for item in client.receive())
    time.sleep(0.2)
    replies += sum(isinstance(item, Received) for item in client.receive())
    return requests, replies, len(set(ports))


quiet = measure(5, 0)
control(f"quiet: (requests, replies, source ports) {quiet}", quiet[1] >= quiet[0] - 1 and quiet[2] == 1)
attacked = measure(5, 300)
right(f"the honest flow keeps its port alongside the member's: {attacked}", attacked[2] == 1)
control("its replies arrive", attacked[1] >= attacked[0] * 0.95)
proxy.kill()
finish()
