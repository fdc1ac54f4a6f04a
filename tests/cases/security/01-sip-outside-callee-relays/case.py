"""A callee outside `allow` uses its one dialog to have the gateway send anything anywhere inside."""

import socket

from attack import GATEWAY_A, try_call
from phones import Answering, Phone, request, sdp, tag_of, token, udp
from verdict import control, finish, right

OUTSIDE, INSIDE_TCP, INSIDE_UDP = "10.78.0.9", ("10.77.1.40", 6379), ("10.77.1.39", 53)
LINES = "\r\nCONFIG SET dir /root\r\n"

callee = Answering(OUTSIDE)
caller = Phone("10.77.1.1", "x", GATEWAY_A[0], 5066)
answered = try_call(caller, f"q@{OUTSIDE}")
control("an inside phone's call to the outside host is answered", answered and answered.code == 200)
callee_tag = tag_of(answered.get("to")) if answered else ""

tcp = socket.socket()
tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
tcp.bind(INSIDE_TCP)
tcp.listen()
tcp.settimeout(3)
datagrams = udp(*INSIDE_UDP)
datagrams.settimeout(1)
attacker = udp(OUTSIDE, 5099)


def send(method: str, uri: str, number: int, route: str, body: str, call: str = caller.call) -> None:
    attacker.sendto(
        request(
            method,
            uri,
            (OUTSIDE, 5099),
            call,
            callee_tag,
            caller.tag,
            number,
            body,
            [("Route", f"<{route};lr>")],
            sender=f"sip:q@{OUTSIDE}",
            to="sip:x@10.77.1.1",
            kind="text/plain",
        ),
        GATEWAY_A,
    )


def datagram_came() -> bool:
    try:
        return bool(datagrams.recv(9999))
    except TimeoutError:
        return False


send("MESSAGE", "sip:z@10.77.1.39:53", 1, "sip:10.77.1.39:53", "hello", token())
control("without a dialog, nothing passes", not datagram_came())

passed = 0
connection = None
for attempt in range(5):
    target = "sip:10.77.1.40:6379;transport=tcp"
    send("MESSAGE", "sip:z@10.77.1.40:6379;transport=tcp", 10 + attempt, target, LINES)
    try:
        if connection is None:
            connection, _ = tcp.accept()
            connection.settimeout(2)
        passed += LINES.strip().encode() in connection.recv(9999)
    except TimeoutError:
        pass
right(f"an inside TCP server gets the outsider's lines {passed} of 5 times", passed == 0)

send("MESSAGE", "sip:z@10.77.1.39:53", 30, "sip:10.77.1.39:53", "hello")
right("an inside UDP server gets nothing of the outsider", not datagram_came())

other = Phone("10.77.1.2", "q", GATEWAY_A[0], 5065)
send("INVITE", "sip:q@10.77.1.2:5065", 31, "sip:10.77.1.2:5065", sdp(OUTSIDE, 20000))
right("another inside phone gets no INVITE of the outsider", other.receive("INVITE", 0.5) is None)
finish()
