#!/usr/bin/env python3
"""stream.py SOCKET listen PORT: returns the data of each stream.
stream.py SOCKET connect NODE PORT: sends standard input, prints the answer.

examples/c/stream.c does the same, and the two can connect to each other. For a node on another
host SOCKET is "tcp://HOST:PORT?node=PUBKEY&key=FILE".
"""

import asyncio
import sys

import trunkline


async def echo(reader, writer):
    print("{}:{}".format(*writer.get_extra_info("peername")), flush=True)
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError as error:
        print(f"stream: a stream broke off: {error.strerror}", file=sys.stderr)
    writer.close()


async def serve(attachment, port):
    async with await trunkline.start_server(echo, attachment, int(port)) as server:
        print("listening at {}:{}".format(*server.getsockname()), flush=True)
        await server.serve_forever()


async def talk(attachment, node, port):
    reader, writer = await trunkline.open_stream(attachment, (int(node), int(port)))

    async def send_input():
        loop = asyncio.get_running_loop()
        while data := await loop.run_in_executor(None, sys.stdin.buffer.read1, 65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    sending = asyncio.create_task(send_input())
    while data := await reader.read(65536):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    await sending
    writer.close()
    await writer.wait_closed()


if __name__ == "__main__":
    verb = sys.argv[2:3]
    if (verb, len(sys.argv)) not in [(["listen"], 4), (["connect"], 5)]:
        sys.exit(__doc__)
    if not all(number.isdecimal() for number in sys.argv[3:]):
        sys.exit(f"stream: NODE and PORT are numbers\n{__doc__}")
    try:
        run = serve if verb == ["listen"] else talk
        asyncio.run(run(sys.argv[1], *sys.argv[3:]))
    except OSError as error:
        sys.exit(f"stream: {error.strerror}")
