#!/usr/bin/env python3
"""ping.py SOCKET NODE PORT [COUNT]: measures round-trip times to an echo.

Sends one packet of a telephone call's size every 20 ms; examples/c/echo answers.
For a node on another host SOCKET is "tcp://HOST:PORT?node=PUBKEY&key=FILE".
"""

import asyncio
import statistics
import struct
import sys
import time

import trunkline


async def ping(socket, address, count):
    """Round-trip times in milliseconds of the packets that came back."""
    loop, times, done = asyncio.get_running_loop(), {}, asyncio.Event()

    def receive():
        while True:
            try:
                data, _ = socket.recvfrom()
            except BlockingIOError:
                return
            except OSError as news:  # a report on the node or on an earlier packet
                print(f"ping: {news.strerror}", file=sys.stderr)
                continue
            number, sent = struct.unpack_from("!Id", data)
            times[number] = 1000 * (time.monotonic() - sent)
            if len(times) == count:
                done.set()

    loop.add_reader(socket, receive)
    for number in range(count):
        try:
            socket.sendto(struct.pack("!Id148x", number, time.monotonic()), address)
        except OSError as error:  # this packet is lost
            print(f"ping: {error.strerror}", file=sys.stderr)
        await asyncio.sleep(0.02)
    try:
        await asyncio.wait_for(done.wait(), timeout=1)
    except asyncio.TimeoutError:
        pass
    loop.remove_reader(socket)
    return list(times.values())


def main(attachment, node, port, count=50):
    with trunkline.Socket(attachment) as socket:
        socket.setsockopt(trunkline.NONBLOCK, 1)
        socket.bind()
        print("ping from {}:{}".format(*socket.getsockname()))
        times = asyncio.run(ping(socket, (int(node), int(port)), int(count)))
        print(f"{len(times)} of {count} came back")
        if times:
            print(f"median {statistics.median(times):.2f} ms, longest {max(times):.2f} ms")


if __name__ == "__main__":
    if not 4 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except OSError as error:
        sys.exit(f"ping: cannot attach to {sys.argv[1]}: {error.strerror}")
