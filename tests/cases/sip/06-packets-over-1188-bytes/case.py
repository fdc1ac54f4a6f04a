"""Media packets of 1,200 bytes, and DTLS-SRTP whose certificate fills them."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

from phones import A, B, P, Q, Media, Phone, connect, hang_up, sdp
from verdict import control, finish, right

p, q = Phone(P, "p", A, namespace="p"), Phone(Q, "q", B, namespace="q")
sender, receiver = Media(P, 4100, "p"), Media(Q, 4102, "q")


def packets() -> None:
    answered, _ = connect(p, q, sdp(P, 4100), sdp(Q, 4102))
    for size in (1188, 1200):
        receiver.drain()
        sender.send(answered.media(), 5, payload=b"x" * (size - 12))
        time.sleep(0.2)
        count = len(receiver.drain())
        (control if size == 1188 else right)(f"{count} of 5 packets of {size} bytes arrive", count == 5)
    sender.send(answered.media(), 5, payload=b"x" * 1400)
    time.sleep(2.5)
    right(
        "the log says once that larger packets don't fit, and names the call",
        len(re.findall("packets of a call are dropped as too large.* call=", plain_log())) == 1,
    )
    rows = json.loads(subprocess.check_output([os.environ["TRUNKLINE"], "calls", "--json", "--control", "a.ctl"]))
    counted = [leg["too_large"] for row in rows for leg in row["legs"]]
    right(f"`calls` counts them: {counted}", 5 in counted)
    hang_up(p, q)


def plain_log() -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", Path("a.log").read_text())


def dtls_description(address: str, port: int, setup: str) -> str:
    fingerprint = ":".join(["AA"] * 32)
    further = f"a=fingerprint:sha-256 {fingerprint}\r\na=setup:{setup}\r\na=rtcp-mux\r\n"
    return sdp(address, port, further).replace("RTP/AVP", "UDP/TLS/RTP/SAVP")


def dtls(size: int) -> bool:
    """Whether both ends agree on keys; openssl's -mtu is the link's: 28 bytes more."""
    answered, _ = connect(
        p, q, dtls_description(P, 4000, "actpass"), dtls_description(Q, 4002, "passive")
    )
    host, port = answered.media()
    options = f"-dtls1_2 -cert dtls.pem -key dtls.key -use_srtp SRTP_AES128_CM_SHA1_80 -mtu {size + 28}".split()
    server = subprocess.Popen(
        [
            "ip",
            "netns",
            "exec",
            "q",
            "openssl",
            "s_server",
            "-accept",
            f"{Q}:4002",
            "-Verify",
            "1",
            *options,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(0.5)
    client = subprocess.Popen(
        [
            "ip",
            "netns",
            "exec",
            "p",
            "openssl",
            "s_client",
            "-bind",
            f"{P}:4000",
            "-connect",
            f"{host}:{port}",
            *options,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    time.sleep(6)
    client.kill()
    said = client.communicate()[0]
    server.kill()
    hang_up(p, q)
    return bool(re.search("SRTP Extension negotiated", said))


packets()
control("DTLS with datagrams of 1,172 bytes agrees", dtls(1172))
right("DTLS with datagrams of 1,200 bytes agrees", dtls(1200))
finish()
