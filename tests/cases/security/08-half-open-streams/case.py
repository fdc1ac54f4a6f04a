"""One member asks for streams in the names of nodes that do not exist, and never answers."""

import socket
import subprocess
import threading
import time
from typing import List

from attack import TRUNKLINE, ask, held_by
from member import Member, open_request
from verdict import control, finish, right

member = Member()
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", 45998))
server.listen(1000)
connections: List[socket.socket] = []


def accept() -> None:
    while True:
        connections.append(server.accept()[0])


def request_streams(first: int, count: int) -> None:
    for number in range(first, first + count):
        member.segment(
            (1000 + number, 30000 + number), (4, 960), 30000 + number & 0xFFFF, open_request()
        )
        time.sleep(0.003)


def opens(port: int) -> bool:
    """Whether node 1 can open a stream to a listener at node 4."""
    listener = subprocess.Popen(
        [TRUNKLINE, "cat", "--listen", str(port), "--socket", "4.sock"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    time.sleep(0.3)
    try:
        done = subprocess.run(
            [TRUNKLINE, "cat", f"4:{port}", "--socket", "1.sock"],
            input=b"x",
            capture_output=True,
            timeout=40,
        )
    finally:
        listener.kill()
    print(done.stderr[-150:].decode().strip(), flush=True)
    return done.returncode == 0


threading.Thread(target=accept, daemon=True).start()
proxy = subprocess.Popen(
    [TRUNKLINE, "proxy", "--socket", "4.sock", "4:960", "tcp:127.0.0.1:45998"],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
)
time.sleep(0.5)
control("before, node 1 opens a stream to node 4", opens(970))
print("before:", held_by("4"))
request_streams(0, 500)
time.sleep(1)
print(
    f"500 requests: {ask('status', '4')['streams']} streams, {len(connections)} TCP connections,",
    held_by("4"),
)
right(
    f"no request of the member makes the proxy connect ({len(connections)} do)", len(connections) <= 10
)
honest = subprocess.Popen(
    [TRUNKLINE, "cat", "4:960", "--socket", "1.sock"],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
)
request_streams(2000, 900)
right("node 1 opens a stream to another port of node 4", opens(971))
alive = True
for _ in range(14):
    time.sleep(5)
    print(f"{ask('status', '4')['streams']} streams, {len(connections)} TCP connections", flush=True)
    alive = alive and honest.poll() is None
right("node 1's stream to the same port survives a minute", alive)
for process in (proxy, honest):
    process.kill()
finish()
