"""A name server on 127.0.0.1 for the zone of this case (RFC 1035, RFC 2782)."""

import socket
import struct
from typing import List

A, SRV = 1, 33


def encoded(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


RECORDS = {
    ("pbx.example", A): [socket.inet_aton("192.0.2.99"), socket.inet_aton("192.0.2.12")],
    ("_sip._udp.srv.example", SRV): [struct.pack("!HHH", 10, 1, 5070) + encoded("host.example")],
    ("host.example", A): [socket.inet_aton("192.0.2.12")],
}

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
while True:
    query, client = server.recvfrom(2000)
    labels: List[str] = []
    at = 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += query[at] + 1
    kind = struct.unpack_from("!H", query, at + 1)[0]
    answers = RECORDS.get((".".join(labels).lower(), kind), [])
    head = query[:2] + struct.pack("!HHHHH", 0x8180, 1, len(answers), 0, 0) + query[12 : at + 5]
    body = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 5, len(data)) + data for data in answers)
    server.sendto(head + body, client)
