"""An application's session with its node, over a Unix socket (docs/protocol.md, section 13)."""

import socket
import struct
from typing import Iterator, NamedTuple, Tuple

VERSION = 1
BEST_EFFORT, REAL_TIME, RELIABLE = 1, 2, 3
LARGEST_MESSAGE = 9020

BIND, SEND = 1, 2
BOUND, RECEIVED, ERROR, STATUS = 0x81, 0x82, 0x83, 0x84


class Received(NamedTuple):
    """A packet from the application at `source`, a (node, port)."""

    source: Tuple[int, int]
    payload: bytes


class Notice(NamedTuple):
    """An error (kind ERROR) or the status of a destination (kind STATUS), by its code."""

    kind: int
    code: int


class Session:
    """One virtual port at the node whose session socket is at `path`; port 0 is any free one."""

    def __init__(self, path: str, port: int = 0) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(2)
        self.socket.connect(path)
        self.socket.send(struct.pack(">BBH", BIND, VERSION, port))
        answer = self.socket.recv(LARGEST_MESSAGE)
        if not answer or answer[0] != BOUND:
            raise OSError(f"{path} does not bind port {port}: it answers {answer.hex()}")
        self.node, self.port, self.largest = struct.unpack(">IHH", answer[1:9])
        self.socket.setblocking(False)

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(
        self, to: Tuple[int, int], payload: bytes, service: int = REAL_TIME, deadline_ms: int = 100
    ) -> bool:
        """Sends a packet; False if the node takes none at the moment."""
        try:
            self.socket.send(struct.pack(">BBBIH", SEND, service, deadline_ms, *to) + payload)
        except BlockingIOError:
            return False
        return True

    def receive(self) -> Iterator[object]:
        """Everything that has come: Received and Notice. Raises EOFError once the node is gone."""
        while True:
            try:
                message = self.socket.recv(LARGEST_MESSAGE)
            except BlockingIOError:
                return
            if not message:
                raise EOFError("the node has ended the session")
            if message[0] == RECEIVED:
                yield Received(struct.unpack(">IH", message[5:11]), message[11:])
            elif message[0] in (ERROR, STATUS):
                yield Notice(message[0], message[1])
