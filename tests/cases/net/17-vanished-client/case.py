"""Clients of a TCP proxy vanish; one that only reads nothing stays."""

import os
import select
import socket
import subprocess
import sys
import threading
import time

from verdict import control, finish, right

TRUNKLINE = os.environ["TRUNKLINE"]
AT = "10.9.1.2"
# Connects, sends a word, prints the answer, and then reads nothing; prints the end.
CLIENT = """
import socket, sys, time
client = socket.create_connection(("10.9.1.2", 5000))
client.sendall(sys.argv[1].encode())
print(client.recv(2).decode(), flush=True)
while True:
    time.sleep(1)
    error = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        print("ended", error, flush=True)
        break
"""


def serve(client: socket.socket) -> None:
    try:
        word = client.recv(4)
        client.sendall(b"ok")
        while word == b"data":
            client.sendall(bytes(1000))
            time.sleep(0.01)
    except OSError:
        pass


def accept() -> None:
    while True:
        client, _ = server.accept()
        threading.Thread(target=serve, args=(client,), daemon=True).start()


def proxy(listen: str, send: str) -> None:
    arguments = [TRUNKLINE, "proxy", "--socket", "1.sock", "--max-flows", "3", listen, send]
    subprocess.Popen(arguments + ["--max-flows-per-node", "3"], stderr=sys.stderr)


def client(host: str, word: str) -> "subprocess.Popen[str]":
    command = ["ip", "netns", "exec", host, sys.executable, "-c", CLIENT, word]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def answered(program: "subprocess.Popen[str]") -> bool:
    assert program.stdout
    # A connection that is refused ends only after a while.
    ready, _, _ = select.select([program.stdout], [], [], 2)
    return bool(ready) and program.stdout.readline() == "ok\n"


def has_place() -> bool:
    program = client("4", "ping")
    there = answered(program)
    program.kill()
    return there


server = socket.create_server(("127.0.0.1", 5001))
threading.Thread(target=accept, daemon=True).start()
proxy("1:900", "tcp:127.0.0.1:5001")
proxy(f"tcp:{AT}:5000", "1:900")
time.sleep(1)
silent, receiver, lazy = client("2", "idle"), client("3", "data"), client("4", "data")
control("three clients are served", all([answered(program) for program in (silent, receiver, lazy)]))
control("a fourth finds no place", not has_place())
start = time.monotonic()
for host in ("2", "3"):
    # Without a trace: a link that is down would make the router report the host as unreachable.
    subprocess.run(["ip", "-n", "router", "route", "add", "blackhole", f"10.9.{host}.2"], check=True)
time.sleep(50)
control("after 50 s there is none yet", not has_place())
free = []
while len(free) < 2 and time.monotonic() < start + 150:
    program = client("4", "ping")
    if answered(program):
        # It keeps its place.
        free.append(time.monotonic() - start)
    else:
        program.kill()
        time.sleep(1)
print("places were free after", ", ".join(f"{at:.0f} s" for at in free))
right("both places are free after 140 s", len(free) == 2 and free[1] <= 140)
right("the client that reads nothing still has its connection", lazy.poll() is None)
finish()
