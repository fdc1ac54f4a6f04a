"""A call whose INVITE is challenged by 407 and repeated with credentials."""

import subprocess
import time

from phones import A, B, P, Q, Phone, hang_up, records, sdp
from verdict import finish, right

p, q = Phone(P, "p", A, namespace="p"), Phone(Q, "q", B, namespace="q")


def total() -> int:
    """Calls that gateway a has counted."""
    page = subprocess.run(
        [
            "ip",
            "netns",
            "exec",
            "a",
            "python3",
            "-c",
            "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9101/metrics').read().decode())",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return sum(
        int(float(line.split()[1]))
        for line in page.splitlines()
        if line.startswith("trunkline_calls_total")
    )


before = total()
p.invite(f"q@{Q}", sdp(P, 4000))
q.reply(q.expect("INVITE"), 407, headers=[("Proxy-Authenticate", 'Digest realm="x", nonce="1"')])
p.refuse_challenge(p.expect(407))
q.expect("ACK")
credentials = 'Digest username="p", realm="x", nonce="1", uri="sip:q", response="0"'
p.invite(f"q@{Q}", sdp(P, 4000), [("Proxy-Authorization", credentials)], again=True)
q.reply(q.expect("INVITE"), 200, sdp(Q, 4002))
p.established(p.expect(200))
q.expect("ACK")
hang_up(p, q)
time.sleep(1)

count = total() - before
right(f"it is counted as one call ({count})", count == 1)
found = [(record["outcome"], record["status"]) for record in records(p.call)]
right(f"it has one record: {found}", len(found) == 1)
finish()
