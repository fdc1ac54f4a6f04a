"""An independent member of an overlay: a leaf at one node, which may lie about its packets.

It speaks the protocol of docs/protocol.md and shares no code with trunkline.
"""

import os
import socket
import struct
import threading
import time
from typing import Dict, List, Optional, Tuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from handshake import Handshake, Identity, payload, read_base64, with_mac, x25519_of
from verdict import control

BEST_EFFORT, REAL_TIME, RELIABLE = 1, 2, 3
ANSWER, RESPONSE = 0x14, 0x16
HELLO, NACK, LINK_STATE, LINK_STATE_ACK, GOODBYE, CHALLENGE, CHALLENGE_RESPONSE, SACK = range(1, 9)
STREAM_SEGMENT = 0x10
# The routing digest of a node with default [routing] (section 12.6).
ROUTING_DIGEST = 0x459C015F
SIGNATURE = 64

# Flags of a stream's segments (section 11.1).
OPEN, END, RESET, ACK, DATA, NUMBER = 0x01, 0x02, 0x04, 0x08, 0x40, 0x80


class Link:
    """A sealed link with a node, by one handshake; it lasts 180 s."""

    def __init__(
        self,
        port: int,
        to: Tuple[str, int],
        identity: Identity,
        node: int,
        certificate: bytes,
        peer: bytes,
    ) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", port))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self._to, self._counter, self._hellos = to, 0, 0
        self._index = os.urandom(3)
        self._heard: Optional[float] = None
        self._echo: Optional[Tuple[int, float]] = None
        control(
            "the node takes the member's handshake",
            self._shake_hands(identity, node, certificate, x25519_of(peer)),
        )
        self.socket.settimeout(0.005)

    def _shake_hands(self, identity: Identity, node: int, certificate: bytes, peer: bytes) -> bool:
        cookie, incarnation = bytes(16), time.time_ns()
        self.socket.settimeout(2)
        for _ in range(3):
            handshake = Handshake(identity, peer)
            text = payload(self._index, node, incarnation, time.time_ns(), certificate)
            message = b"\x15" + bytes(16) + cookie + handshake.initiation(text)
            self.socket.sendto(with_mac(message, peer), self._to)
            try:
                while True:
                    answer = self.socket.recv(2048)
                    if answer[0] == ANSWER:
                        cookie = answer[25:41]
                        break
                    if answer[0] == RESPONSE and answer[17:20] == self._index:
                        said, seal, unseal = handshake.response(answer[20:])
                        self._seal, self._open, self._peer_index = (
                            AESGCM(seal),
                            AESGCM(unseal),
                            said[2:5],
                        )
                        return True
            except TimeoutError:
                continue
        return False

    def send(self, frames: bytes) -> None:
        head = b"\x12" + self._peer_index + struct.pack(">I", self._counter)
        self.socket.sendto(
            head + self._seal.encrypt(struct.pack(">IQ", 0, self._counter), frames, head), self._to
        )
        self._counter += 1

    def receive(self) -> Optional[bytes]:
        """The frames of the next envelope; None if nothing came, or nothing that opens."""
        try:
            message = self.socket.recv(9000)
        except TimeoutError:
            return None
        if message[0] != 0x12:
            return None
        counter = int.from_bytes(message[4:8], "big")
        try:
            frames = self._open.decrypt(struct.pack(">IQ", 0, counter), message[8:], message[:8])
        except InvalidTag:
            return None
        self._heard = time.monotonic()
        return frames

    def hello_came(self, frame: bytes) -> None:
        self._echo = int.from_bytes(frame[4:8], "big"), time.monotonic()

    def hello(self) -> bytes:
        now = time.monotonic()
        echo, held, silent = 0, 0xFFFFFF, 0xFFFF
        if self._echo and self._heard:
            echo = self._echo[0]
            held = min(int((now - self._echo[1]) * 1e6), 0xFFFFFE)
            silent = int((now - self._heard) * 1e3) + 1
        self._hellos += 1
        sent = int(now * 1e6) & 0xFFFFFFFF
        head = struct.pack(">BBHII", HELLO, 3, self._hellos & 0xFFFF, sent, echo)
        return head + held.to_bytes(3, "big") + struct.pack(">HHBH", silent, 0, 0, 0)


def signed(identity: Identity, record: bytes) -> bytes:
    """A record with its signature and an age of 0 (section 12.1)."""
    return record + identity.sign(b"trunkline link state 1\0" + record) + bytes(2)


def introduction(identity: Identity, node: int, number: int, certificate: bytes) -> bytes:
    return signed(identity, struct.pack(">BIQH", 0x80, node, number, len(certificate)) + certificate)


def links(identity: Identity, node: int, number: int, neighbours: List[int]) -> bytes:
    """The links of a node, by the empty path label, without delay or loss."""
    head = struct.pack(">BIQIB", 0, node, number, ROUTING_DIGEST, len(neighbours))
    return signed(
        identity, head + b"".join(struct.pack(">IBHHB", peer, 0, 0, 0, 0) for peer in sorted(neighbours))
    )


def acknowledgement(records: bytes) -> bytes:
    """Acknowledges each record of a link state frame."""
    keys, at = b"", 0
    while at < len(records):
        kind = records[at]
        if kind & 0x80:
            body = 2 + int.from_bytes(records[at + 13 : at + 15], "big")
        else:
            body = 5 + records[at + 17] * (12 if kind & 0x20 else 10)
        keys += bytes([kind & 0x87]) + records[at + 1 : at + 13]
        at += 13 + body + SIGNATURE + 2
    return struct.pack(">BH", LINK_STATE_ACK, len(keys)) + keys


class Member:
    """Node `node`, whose key and certificate are in NODE.key and NODE.cert, linked to `to`."""

    def __init__(self, node: int = 9, to: int = 2) -> None:
        identity = Identity(read_base64(f"{node}.key"))
        certificate = read_base64(f"{node}.cert")
        self.node = node
        self._link = Link(
            27000 + node,
            ("127.0.0.1", 27000 + to),
            identity,
            node,
            certificate,
            read_base64(f"{to}.pub"),
        )
        self._lock = threading.Lock()
        self._numbers: Dict[int, int] = {service: 0 for service in (BEST_EFFORT, REAL_TIME, RELIABLE)}
        self._acknowledged: Optional[int] = None
        threading.Thread(target=self._serve, daemon=True).start()
        time.sleep(0.5)
        now = time.time_ns()
        records = introduction(identity, node, now, certificate) + links(identity, node, now, [to])
        self.send(struct.pack(">BH", LINK_STATE, len(records)) + records)
        time.sleep(0.5)

    def send(self, frames: bytes) -> None:
        with self._lock:
            self._link.send(frames)

    def _serve(self) -> None:
        following = 0.0
        while True:
            if time.monotonic() >= following:
                self.send(self._link.hello())
                following = time.monotonic() + 0.1
            frames = self._link.receive()
            if frames:
                self._take(frames)

    def _take(self, frames: bytes) -> None:
        at = 0
        while at < len(frames):
            frame = frames[at:]
            if frame[0] >> 6:  # data: nothing here wants it
                at += 20 + (int.from_bytes(frame[1:3], "big") & 0x3FFF)
                continue
            kind = frame[0] & 0x1F
            if kind == HELLO:
                self._link.hello_came(frame)
                at += 22
            elif kind == NACK:
                at += (3 if frame[0] & 0x20 else 2) + 3 * frame[2 if frame[0] & 0x20 else 1]
            elif kind in (LINK_STATE, LINK_STATE_ACK):
                length = int.from_bytes(frame[1:3], "big")
                if kind == LINK_STATE:
                    self.send(acknowledgement(frame[3 : 3 + length]))
                at += 3 + length
            elif kind in (CHALLENGE, CHALLENGE_RESPONSE):
                if kind == CHALLENGE:
                    self.send(bytes([CHALLENGE_RESPONSE]) + frame[1:9])
                at += 9
            elif kind == SACK:
                self._acknowledged = int.from_bytes(frame[6:8], "big")
                at += 13 + 4 * frame[12]
            else:  # a goodbye, or unknown: nothing of interest follows
                return

    def data(
        self, service: int, source: Tuple[int, int], to: Tuple[int, int], flow: int, packet: bytes
    ) -> None:
        """A packet in the name of `source`, which may be another node; `flow` is its flow number."""
        number = self._numbers[service]
        self._numbers[service] += 1
        last = STREAM_SEGMENT if service == RELIABLE else 100
        head = struct.pack(
            ">BHHIIHHHB",
            service << 6 | 31,
            len(packet),
            number & 0xFFFF,
            source[0],
            to[0],
            source[1],
            to[1],
            flow,
            last,
        )
        self.send(head + packet)

    def segment(self, source: Tuple[int, int], to: Tuple[int, int], tag: int, segment: bytes) -> None:
        """A segment of a stream."""
        self.data(RELIABLE, source, to, tag, segment)

    def behind(self) -> int:
        """Reliable packets that the node has not acknowledged yet."""
        if self._acknowledged is None:
            return self._numbers[RELIABLE]
        return (self._numbers[RELIABLE] - self._acknowledged) & 0xFFFF


def open_request(opener: int = 1) -> bytes:
    """A segment that asks to open a stream, with a window of 1 MiB, by the opener's number."""
    return struct.pack(">BI6xHBBB", OPEN | ACK, opener, 4096, 0, 0, 0)


def first_data(data: bytes, opener: int = 1) -> bytes:
    """A segment with all data of a direction and its end, and a guess of the stream's number."""
    number = int.from_bytes(os.urandom(4), "big")
    flags = NUMBER | OPEN | DATA | END | ACK
    return struct.pack(">BII6xHBBB6x", flags, number, opener, 4096, 0, 0, 0) + data


def reset(reason: int) -> bytes:
    """A reset at the beginning of the window, with a guess of the stream's number."""
    return struct.pack(">BB", RESET | NUMBER, reason) + os.urandom(4) + bytes(6)
