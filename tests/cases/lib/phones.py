"""SIP telephones whose every byte is the case's own: messages, dialogs, RTP.

A phone may live in a network namespace; see ../sip/lib.sh for the hosts of the family sip.
"""

import ctypes
import json
import os
import random
import re
import socket
import struct
import subprocess
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

from verdict import control

Address = Tuple[str, int]
Want = Union[None, int, str, Callable[["Message"], bool]]

# Hosts of the family sip: gateways, a phone at each site, and a third host.
A, B, P, Q, X = (f"192.0.2.{host}" for host in (1, 2, 11, 12, 13))
SILENCE = b"\xff" * 160

_libc = ctypes.CDLL(None, use_errno=True)
_home = os.open("/proc/self/ns/net", os.O_RDONLY)


def udp(address: str, port: int, namespace: Optional[str] = None) -> socket.socket:
    """A bound UDP socket, in a namespace of `ip netns` if one is named."""
    if namespace:
        there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
        if _libc.setns(there, 0):
            raise OSError(ctypes.get_errno(), f"cannot enter namespace {namespace}")
        os.close(there)
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        result = socket.socket(family, socket.SOCK_DGRAM)
        result.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        result.bind((address, port))
        return result
    finally:
        if namespace:
            _libc.setns(_home, 0)


def token() -> str:
    return f"{random.getrandbits(64):016x}"


def sdp(address: str, port: int, further: str = "", version: int = 1) -> str:
    """A description of one PCMU stream with telephone events; `further` is appended."""
    return (
        f"v=0\r\no=- 1 {version} IN IP4 {address}\r\ns=-\r\nc=IN IP4 {address}\r\nt=0 0\r\n"
        f"m=audio {port} RTP/AVP 0 101\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:101 telephone-event/8000\r\n{further}"
    )


def compose(
    start: str, headers: Iterable[Tuple[str, str]], body: str = "", kind: str = "application/sdp"
) -> bytes:
    lines = [start] + [f"{name}: {value}" for name, value in headers]
    if body:
        lines.append(f"Content-Type: {kind}")
    content = body.encode()
    return "\r\n".join(lines + [f"Content-Length: {len(content)}", "", ""]).encode() + content


def request(
    method: str,
    uri: str,
    via: Address,
    call: Optional[str] = None,
    tag: Optional[str] = None,
    to_tag: str = "",
    number: int = 1,
    body: str = "",
    headers: Iterable[Tuple[str, str]] = (),
    sender: Optional[str] = None,
    to: Optional[str] = None,
    transport: str = "UDP",
    kind: str = "application/sdp",
) -> bytes:
    """A request from `via`, for attackers: `sender` and `to` (URIs) and the dialog may be false."""
    where = f"{via[0]}:{via[1]}"
    return compose(
        f"{method} {uri} SIP/2.0",
        [
            ("Via", f"SIP/2.0/{transport} {where};branch=z9hG4bK{token()};rport"),
            ("Max-Forwards", "70"),
            ("From", f"<{sender or 'sip:x@' + via[0]}>;tag={tag or token()}"),
            ("To", f"<{to or uri}>" + (f";tag={to_tag}" if to_tag else "")),
            ("Call-ID", call or token()),
            ("CSeq", f"{number} {method}"),
            ("Contact", f"<sip:x@{where}>"),
            *headers,
        ],
        body,
        kind,
    )


class Message:
    """A SIP message that came. `code` is 0 for a request, `method` empty for a response."""

    def __init__(self, raw: bytes, source: Address) -> None:
        head, _, body = raw.partition(b"\r\n\r\n")
        lines = head.decode("utf-8", "replace").split("\r\n")
        self.raw, self.source, self.start = raw, source, lines[0]
        self.body = body.decode("utf-8", "replace")
        self.headers = [
            (n.strip().lower(), v.strip()) for n, _, v in (line.partition(":") for line in lines[1:])
        ]
        words = self.start.split()
        self.code = int(words[1]) if words[0] == "SIP/2.0" else 0
        self.method = "" if self.code else words[0]

    def all(self, name: str) -> List[str]:
        return [value for header, value in self.headers if header == name]

    def get(self, name: str) -> str:
        return (self.all(name) or [""])[0]

    def media(self) -> Tuple[str, int]:
        """Address and port of the first stream that is not refused."""
        session, *streams = re.split(r"(?m)^(?=m=)", self.body)
        for stream in streams:
            port = re.match(r"m=\w+ (\d+)", stream)
            address = re.search(r"(?m)^c=IN IP[46] (\S+)", stream) or re.search(
                r"(?m)^c=IN IP[46] (\S+)", session
            )
            if port and address and int(port[1]):
                return address[1], int(port[1])
        return "", 0


def tag_of(value: str) -> str:
    found = re.search(r"tag=([^;>\s]+)", value)
    return found[1] if found else ""


def uri_of(value: str) -> str:
    found = re.search(r"<?(sips?:[^>]+)>?", value)
    return found[1] if found else ""


class Phone:
    """sip:USER@ADDRESS, whose proxy is the gateway at `gateway`, port 5060."""

    def __init__(
        self, address: str, user: str, gateway: str, port: int = 5060, namespace: Optional[str] = None
    ) -> None:
        self.address, self.user, self.port = address, user, port
        self.gateway = (gateway, 5060)
        self.socket = udp(address, port, namespace)
        self.tag, self.call = token(), token()
        self.number = 1
        self.sent = b""
        self.uri = self.target = self.to = self.remote_tag = ""
        self.route: List[str] = []

    def identity(self) -> str:
        return f"sip:{self.user}@{self.address}"

    def send(self, message: bytes) -> None:
        self.sent = message
        self.socket.sendto(message, self.gateway)

    def receive(self, want: Want = None, seconds: float = 4) -> Optional[Message]:
        """The next message that is wanted (by code, method or function); others are discarded."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                raw, source = self.socket.recvfrom(65535)
            except TimeoutError:
                break
            if not raw.strip():
                continue
            message = Message(raw, source)
            if want is None or (
                want(message) if callable(want) else want in (message.code, message.method)
            ):
                return message
        return None

    def expect(self, want: Want, seconds: float = 4) -> Message:
        """As receive, but a case without this message is broken."""
        message = self.receive(want, seconds)
        if message is None:
            control(f"{self.user} receives {want}", False)
            raise AssertionError
        return message

    def _request(
        self, method: str, uri: str, number: int, body: str, headers: Iterable[Tuple[str, str]]
    ) -> None:
        via = f"{self.address}:{self.port}"
        self.branch = "z9hG4bK" + token()
        to = f"<sip:{self.to}>" + (f";tag={self.remote_tag}" if self.remote_tag else "")
        self.send(
            compose(
                f"{method} {uri} SIP/2.0",
                [
                    ("Via", f"SIP/2.0/UDP {via};branch={self.branch};rport"),
                    ("Max-Forwards", "70"),
                    *(("Route", route) for route in self.route),
                    ("From", f"<{self.identity()}>;tag={self.tag}"),
                    ("To", to),
                    ("Call-ID", self.call),
                    ("CSeq", f"{number} {method}"),
                    ("Contact", f"<sip:{self.user}@{via}>"),
                    *headers,
                ],
                body,
            )
        )

    def invite(
        self, to: str, body: str, headers: Iterable[Tuple[str, str]] = (), again: bool = False
    ) -> None:
        """Calls USER@HOST. `again`: the same call, such as after a challenge."""
        if again:
            self.number += 1
        else:
            self.call, self.number = token(), 1
        self.to, self.uri, self.remote_tag, self.route = to, f"sip:{to}", "", []
        self._request("INVITE", self.uri, self.number, body, headers)

    def established(self, answer: Message) -> None:
        """Takes the dialog from a 200 to an INVITE, and acknowledges it."""
        self.remote_tag = tag_of(answer.get("to"))
        self.route = [
            route.strip() for value in answer.all("record-route") for route in value.split(",")
        ][::-1]
        self.target = uri_of(answer.get("contact")) or self.uri
        self.ack()

    def ack(self) -> None:
        self._request("ACK", self.target, self.number, "", ())

    def request(self, method: str, body: str = "") -> None:
        """A request within the dialog."""
        self.number += 1
        self._request(method, self.target, self.number, body, ())

    def refuse_challenge(self, challenge: Message) -> None:
        """Acknowledges a final response that is no success (RFC 3261, 17.1.1.3)."""
        self.socket.sendto(
            compose(
                f"ACK {self.uri} SIP/2.0",
                [
                    ("Via", f"SIP/2.0/UDP {self.address}:{self.port};branch={self.branch};rport"),
                    ("Max-Forwards", "70"),
                    ("From", f"<{self.identity()}>;tag={self.tag}"),
                    ("To", challenge.get("to")),
                    ("Call-ID", self.call),
                    ("CSeq", f"{self.number} ACK"),
                ],
            ),
            self.gateway,
        )

    def reply(
        self, to: Message, code: int, body: str = "", headers: Iterable[Tuple[str, str]] = ()
    ) -> None:
        target = to.get("to")
        if "tag=" not in target:
            target += f";tag={self.tag}"
        self.socket.sendto(
            compose(
                f"SIP/2.0 {code} Case",
                [
                    *(("Via", value) for value in to.all("via")),
                    *(("Record-Route", value) for value in to.all("record-route")),
                    ("From", to.get("from")),
                    ("To", target),
                    ("Call-ID", to.get("call-id")),
                    ("CSeq", to.get("cseq")),
                    ("Contact", f"<sip:{self.user}@{self.address}:{self.port}>"),
                    *headers,
                ],
                body,
            ),
            to.source,
        )


class Answering(threading.Thread):
    """A phone that answers every request: an INVITE by 200, or by 180 if it only rings."""

    def __init__(self, address: str, port: int = 5060, media: int = 20000, rings: bool = False) -> None:
        super().__init__(daemon=True)
        self.phone = Phone(address, "y", address, port)
        self.media = Media(address, media)
        self.rings = rings
        self.received: List[Message] = []
        self.start()

    def run(self) -> None:
        while True:
            message = self.phone.receive(None, 3600)
            if message is None:
                continue
            self.received.append(message)
            if message.code or message.method == "ACK":
                continue
            if message.method != "INVITE":
                self.phone.reply(message, 200)
            elif self.rings:
                self.phone.reply(message, 180)
            else:
                self.phone.reply(message, 200, sdp(self.media.address, self.media.port))


def rtp(
    number: int, stamp: int, source: int, kind: int = 0, payload: bytes = SILENCE, marker: bool = False
) -> bytes:
    head = struct.pack("!BBHII", 0x80, marker << 7 | kind, number & 0xFFFF, stamp & 0xFFFFFFFF, source)
    return head + payload


class Media:
    """The RTP of one end of a call."""

    def __init__(self, address: str, port: int, namespace: Optional[str] = None) -> None:
        self.socket = udp(address, port, namespace)
        self.socket.setblocking(False)
        self.address, self.port = address, port
        self.number, self.stamp, self.source = (random.getrandbits(bits) for bits in (15, 31, 32))

    def send_one(self, to: Address, payload: bytes = SILENCE) -> None:
        self.socket.sendto(rtp(self.number, self.stamp, self.source, payload=payload), to)
        self.number += 1
        self.stamp += 160

    def send(self, to: Address, count: int, interval: float = 0.02, payload: bytes = SILENCE) -> None:
        """Sends `count` packets of 20 ms each; `interval` is by this machine's clock."""
        start = time.monotonic()
        for number in range(count):
            self.send_one(to, payload)
            time.sleep(max(0.0, start + (number + 1) * interval - time.monotonic()))

    def drain(self) -> List[bytes]:
        """The packets that have arrived since the previous drain()."""
        came = []
        while True:
            try:
                came.append(self.socket.recv(4000))
            except BlockingIOError:
                return came


def talk(a: Media, a_to: Address, b: Media, b_to: Address, count: int = 25) -> Tuple[int, int]:
    """Both ends send `count` packets; how many each hears."""
    a.drain(), b.drain()
    for _ in range(count):
        for end, to in ((a, a_to), (b, b_to)):
            if to[1]:
                end.send_one(to)
        time.sleep(0.02)
    time.sleep(0.2)
    return len(a.drain()), len(b.drain())


def connect(caller: Phone, callee: Phone, offer: str, answer: str) -> Tuple[Message, Message]:
    """A call that is answered: the caller's 200 and the callee's INVITE, which say where to send."""
    caller.invite(f"{callee.user}@{callee.address}", offer)
    invite = callee.expect("INVITE")
    callee.reply(invite, 200, answer)
    answered = caller.expect(200)
    caller.established(answered)
    callee.expect("ACK")
    return answered, invite


def invite_again(caller: Phone, callee: Phone, offer: str, answer: str) -> Tuple[Message, Message]:
    """A re-INVITE by the caller, which the callee answers; not yet acknowledged."""
    caller.request("INVITE", offer)
    invite = callee.expect("INVITE")
    callee.reply(invite, 200, answer)
    return caller.expect(200), invite


def hang_up(caller: Phone, callee: Phone) -> None:
    caller.request("BYE")
    callee.reply(callee.expect("BYE"), 200)
    caller.expect(200)


def leg(call: str) -> Dict[str, Any]:
    """Gateway a's report on a live call's media from the caller."""
    said = subprocess.run(
        [os.environ["TRUNKLINE"], "calls", "--control", "a.ctl", "--json", "--live"],
        capture_output=True,
        text=True,
    ).stdout
    return next(item for item in json.loads(said) if item["call"] == call)["legs"][0]


def records(call: str) -> List[Dict[str, Any]]:
    """Gateway a's records of a call."""
    with open("a.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if call in line]
