"""Shared by the cases of the family security: processes, streams, calls, forged datagrams."""

import json
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from phones import Address, Message, Phone, sdp, token
from session import Session

TRUNKLINE = os.environ["TRUNKLINE"]
GATEWAY_A, GATEWAY_B = ("10.77.0.1", 5060), ("10.77.0.2", 5060)


def pid_of(node: str) -> int:
    with open(f"{node}.pid", encoding="ascii") as file:
        return int(file.read())


def held_by(node: str) -> Dict[str, int]:
    """Resident memory (KiB) and open files of a node."""
    pid = pid_of(node)
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        memory = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
    return {"memory_kib": memory, "files": len(os.listdir(f"/proc/{pid}/fd"))}


def ask(command: str, node: str, *options: str) -> Any:
    said = subprocess.run(
        [TRUNKLINE, command, "--control", f"{node}.ctl", "--json", *options],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(said.stdout)


def forge(source: Address, to: Address, data: bytes) -> None:
    """Sends a UDP datagram in the name of another host (IPv4)."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        datagram = struct.pack(">HHHH", source[1], to[1], 8 + len(data), 0) + data
        addresses = socket.inet_aton(source[0]), socket.inet_aton(to[0])
        head = struct.pack(
            ">BBHHHBBH4s4s",
            0x45,
            0,
            20 + len(datagram),
            random.getrandbits(16),
            0,
            64,
            17,
            0,
            *addresses,
        )
        raw.sendto(head + datagram, (to[0], 0))


def short_invite(source: Address, uri: str) -> bytes:
    """The smallest INVITE that a gateway takes."""
    host = f"[{source[0]}]" if ":" in source[0] else source[0]
    lines = [
        f"INVITE {uri} SIP/2.0",
        f"v:SIP/2.0/UDP {host}:{source[1]};branch=z9hG4bK{token()}",
        f"f:<sip:a@a>;tag={token()}",
        "t:<sip:b@b>",
        f"i:{token()}",
        "CSeq:1 INVITE",
        "",
        "",
    ]
    return "\r\n".join(lines).encode()


def try_call(phone: Phone, to: str, media: int = 21000, seconds: float = 4) -> Optional[Message]:
    """Calls USER@HOST: the final response. A call that is answered is acknowledged."""
    while phone.receive(None, 0.05):  # messages of earlier calls
        pass
    phone.invite(to, sdp(phone.address, media))
    final = phone.receive(lambda m: m.code >= 200 and m.get("call-id") == phone.call, seconds)
    if final and final.code == 200:
        phone.established(final)
    return final


class Stream:
    """A stream from node `source` to node `to`, by two processes of `trunkline cat`."""

    def __init__(self, source: str, to: int, port: int) -> None:
        self.received = 0
        self.heard = time.monotonic()
        self.receiver = subprocess.Popen(
            [TRUNKLINE, "cat", "--listen", str(port), "--socket", f"{to}.sock"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        time.sleep(0.3)
        self.sender = subprocess.Popen(
            [TRUNKLINE, "cat", f"{to}:{port}", "--socket", f"{source}.sock"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.receiver.stdout
        while data := os.read(self.receiver.stdout.fileno(), 1 << 20):
            self.received += len(data)
            self.heard = time.monotonic()

    def write(self, size: int, interval: float) -> None:
        """Writes `size` bytes each `interval` seconds, in the background, until it breaks off."""

        pipe = self.sender.stdin
        assert pipe

        def run() -> None:
            try:
                while True:
                    pipe.write(bytes(size))
                    pipe.flush()
                    time.sleep(interval)
            except (OSError, ValueError):
                pass

        threading.Thread(target=run, daemon=True).start()

    def rates(self, seconds: int) -> List[float]:
        """Mbit/s of each of the next seconds."""
        rates = []
        for _ in range(seconds):
            before = self.received
            time.sleep(1)
            rates.append(round((self.received - before) * 8 / 1e6, 2))
        return rates

    def is_alive(self) -> bool:
        return self.sender.poll() is None and self.receiver.poll() is None

    def close(self) -> None:
        for process in (self.sender, self.receiver):
            process.kill()
            process.wait()


def stream_rates(source: str, to: int, seconds: int) -> List[float]:
    """Mbit/s of each second of a stream that writes all that it can."""
    stream = Stream(source, to, 950)
    stream.write(65536, 0)
    rates = stream.rates(seconds)
    stream.close()
    return rates


class Flood:
    """Packets of 1,000 bytes from node `source` to node 4, at a rate of `bps` of payload."""

    PORT = 7777

    def __init__(self, source: str, service: int, bps: float) -> None:
        self._stop = threading.Event()
        self._sink = Session("4.sock", self.PORT)
        self._sender = Session(f"{source}.sock")
        self._threads = [
            threading.Thread(target=self._send, args=(service, bps)),
            threading.Thread(target=self._drain),
        ]
        for thread in self._threads:
            thread.start()

    def _send(self, service: int, bps: float) -> None:
        start, count = time.monotonic(), 0
        while not self._stop.is_set():
            while count < (time.monotonic() - start) * bps / 8000:
                self._sender.send((4, self.PORT), bytes(1000), service)
                count += 1
            list(self._sender.receive())
            time.sleep(0.002)

    def _drain(self) -> None:
        while not self._stop.is_set():
            list(self._sink.receive())
            time.sleep(0.005)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._sender.socket.close()
        self._sink.socket.close()
        time.sleep(3)


def calls_beside(
    seconds: int = 6, port: int = 8600, calls: int = 5, deadline: int = 100
) -> Dict[str, Any]:
    """Calls from node 1 to node 4: what lib/flow.py reports."""
    flow = os.path.join(os.path.dirname(__file__), "flow.py")
    said = subprocess.run(
        [
            sys.executable,
            flow,
            "1.sock",
            "4.sock",
            "4",
            str(seconds),
            "--calls",
            str(calls),
            "--port",
            str(port),
            "--deadline",
            str(deadline),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(said.stdout)
