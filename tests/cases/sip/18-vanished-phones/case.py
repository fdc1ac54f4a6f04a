"""Connections by TCP from a host that vanishes."""

import socket
import subprocess
import time

from phones import A, X, udp
from verdict import control, finish, right

GATEWAY = (A, 5060)


def tcp(namespace: str) -> socket.socket:
    """A connection to the gateway from a namespace."""
    ours, theirs = socket.socketpair()
    code = (
        "import socket, sys\n"
        f"sock = socket.create_connection({GATEWAY})\n"
        f"socket.send_fds(socket.socket(fileno={theirs.fileno()}), [b'x'], [sock.fileno()])\n"
    )
    subprocess.run(["ip", "netns", "exec", namespace, "python3", "-c", code], check=True, pass_fds=[theirs.fileno()])
    _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=fds[0])


def options(uri: str, transport: str, at: str) -> bytes:
    return (
        f"OPTIONS {uri} SIP/2.0\r\nVia: SIP/2.0/{transport} {at};branch=z9hG4bK{at}\r\nMax-Forwards: 9\r\n"
        f"From: <sip:a@{at}>;tag=1\r\nTo: <{uri}>\r\nCall-ID: {at}\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
    ).encode()


def established() -> int:
    """Connections that the gateway has."""
    table = subprocess.run(["ip", "netns", "exec", "a", "cat", "/proc/net/tcp"], check=True, capture_output=True)
    rows = [line.split() for line in table.stdout.decode().splitlines()[1:]]
    return sum(row[1].endswith(":13C4") and row[3] == "01" for row in rows)


phones = [tcp("p"), tcp("p")]
for phone in phones:
    at = "{}:{}".format(*phone.getsockname())
    phone.sendall(options(f"sip:{A}:5060", "TCP", at))
    control("a phone is answered", phone.recv(4096).startswith(b"SIP/2.0 200"))
control("both are connected", established() == 2)
subprocess.run(["ip", "link", "set", "v11", "down"], check=True)
gone = time.monotonic()
# This one waits for something to be acknowledged, the other is idle.
to = "sip:p@{}:{};transport=tcp".format(*phones[0].getsockname())
udp(X, 5060, "x").sendto(options(to, "UDP", f"{X}:5060"), GATEWAY)
time.sleep(8)
control("they stay for some seconds", established() == 2)
while established() and time.monotonic() < gone + 60:
    time.sleep(1)
right(f"their connections have ended within 45 s ({time.monotonic() - gone:.0f} s)", time.monotonic() < gone + 45)
finish()
