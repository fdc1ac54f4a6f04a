"""Eight allowed addresses each keep 512 TCP connections with most of a message."""

import socket
import time
from typing import Dict, List

from attack import GATEWAY_A, held_by
from phones import request
from verdict import control, finish, right


def options(address: str) -> bytes:
    return request("OPTIONS", "sip:x@10.77.0.1", (address, 5060), transport="TCP")


PART = (
    b"MESSAGE sip:x@10.77.0.1 SIP/2.0\r\nX: "
    + b"a" * 30000
    + b"\r\nContent-Length: 35000\r\n\r\n"
    + b"b" * 34000
)
before = held_by("a")
print("before:", before)
connections: List[socket.socket] = []
errors: Dict[str, int] = {}
for host in range(21, 29):
    address = f"10.77.1.{host}"
    for _ in range(512):
        connection = socket.socket()
        connection.settimeout(2)
        connection.bind((address, 0))
        try:
            connection.connect(GATEWAY_A)
            connection.sendall(options(address) + PART)
            connections.append(connection)
        except OSError as error:
            errors[str(error)] = errors.get(str(error), 0) + 1
held = held_by("a")
print(f"{len(connections)} connections, {errors}:", held)
control("the connections are there", len(connections) > 500)
grown = (held["memory_kib"] - before["memory_kib"]) / 1024
right(f"they take less than 64 MiB of the gateway's memory ({grown:.0f} MiB)", grown < 64)

other = socket.socket()
other.settimeout(3)
other.bind(("10.77.1.1", 0))
answer = b""
try:
    other.connect(GATEWAY_A)
    other.sendall(options("10.77.1.1"))
    answer = other.recv(999)
except OSError as error:
    print("another address:", error)
control("another address's request is answered", answer.startswith(b"SIP/2.0"))
time.sleep(40)
grown = (held_by("a")["memory_kib"] - before["memory_kib"]) / 1024
right(f"40 s later it is less than 64 MiB ({grown:.0f} MiB)", grown < 64)
finish()
