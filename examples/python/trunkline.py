"""Datagram sockets and streams over an overlay of trunkline nodes.

    with Socket("/run/trunkline/node.sock") as socket:
        socket.bind(0)
        socket.sendto(b"hello", (7, 4000))
        data, (node, port) = socket.recvfrom()

A node on another host is "tcp://HOST:PORT?node=PUBKEY&key=FILE". PUBKEY is its public
key; FILE holds this application's secret key, made by `trunkline keygen`.

Errors are OSError with the numbers that trunkline.h explains, so Python's subclasses
apply: BlockingIOError if nothing has arrived, or if sendto exceeds what the node lets
this user send, ConnectionResetError once after the node was away. The socket is
notified once when packets to a destination are dropped, and once when they arrive
again:

    except OSError as error:
        if (status := socket.status()) is not None:
            print(status)    # Unreachable(to=(7, 4000), why='no route', since=None)

A socket has a fileno() for selectors, or for an asyncio loop's add_reader. (Ctrl-C
interrupts those, but not a recvfrom or sendto that waits.)

Streams are bytes in order, none lost, as on TCP:

    with StreamSocket("/run/trunkline/node.sock") as stream:
        stream.connect((7, 4000))
        stream.sendall(b"hello")
        stream.shutdown()
        answer = stream.read()

StreamListener accepts incoming streams. On asyncio, `await open_stream(…)` and
`await start_server(…)` give the readers and writers of asyncio's own streams.
"""

import asyncio
import ctypes
import errno
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ssize_t, c_uint16, c_uint32, c_void_p, sizeof
from typing import NamedTuple, Optional, Tuple

SERVICE, DEADLINE_MS, NONBLOCK, RCVTIMEO_MS, MAX_PAYLOAD = range(1, 6)
METRIC, LATE, BLOCKING, MESSAGES = range(6, 10)
BEST_EFFORT, REAL_TIME, RELIABLE = 1, 2, 3
EXPECTED_LATENCY, LATENCY, LOSS, HOPS = range(1, 5)
DONTWAIT = 0x40
MAX_STREAM_MESSAGE = 16 << 20


class _Addr(ctypes.Structure):
    _fields_ = [("node", c_uint32), ("port", c_uint16)]


class _Status(ctypes.Structure):
    _fields_ = [("to", _Addr), ("why", c_int), ("since_ms", c_int)]


class Reachable(NamedTuple):
    """Packets to the address `to` arrive again, as far as is known."""

    to: Tuple[int, int]


class Unreachable(NamedTuple):
    """Packets to the address `to` are dropped. `why` is "no route", "unreachable since"
    (for `since` seconds) or "no port"."""

    to: Tuple[int, int]
    why: str
    since: Optional[float] = None


_lib = ctypes.CDLL("libtrunkline.so.0", use_errno=True)
_lib.tl_strerror.argtypes, _lib.tl_strerror.restype = [c_int], c_char_p
_lib.tl_version.argtypes, _lib.tl_version.restype = [], c_char_p


def _function(name, result, *arguments):
    def check(value, function, arguments):
        if value < 0:
            number = ctypes.get_errno()
            raise OSError(number, _lib.tl_strerror(number).decode())
        return value

    function = _lib[name]
    function.argtypes, function.restype, function.errcheck = arguments, result, check
    return function


_socket = _function("tl_socket", c_int, c_char_p)
_bind = _function("tl_bind", c_int, c_int, c_uint16)
_sendto = _function("tl_sendto", c_ssize_t, c_int, c_char_p, c_size_t, c_int, POINTER(_Addr))
_recvfrom = _function("tl_recvfrom", c_ssize_t, c_int, c_void_p, c_size_t, c_int, POINTER(_Addr))
_setsockopt = _function("tl_setsockopt", c_int, c_int, c_int, c_void_p, c_size_t)
_getsockopt = _function("tl_getsockopt", c_int, c_int, c_int, c_void_p, POINTER(c_size_t))
_getsockname = _function("tl_getsockname", c_int, c_int, POINTER(_Addr))
_status = _function("tl_status", c_int, c_int, POINTER(_Status))
_close = _function("tl_close", c_int, c_int)
_stream_socket = _function("tl_stream_socket", c_int, c_char_p)
_connect = _function("tl_connect", c_int, c_int, POINTER(_Addr))
_listen = _function("tl_listen", c_int, c_int, c_int)
_accept = _function("tl_accept", c_int, c_int, POINTER(_Addr))
_read = _function("tl_read", c_ssize_t, c_int, c_void_p, c_size_t)
_write = _function("tl_write", c_ssize_t, c_int, c_char_p, c_size_t)
_shutdown = _function("tl_shutdown", c_int, c_int)
_reset = _function("tl_reset", c_int, c_int)


def version():
    return _lib.tl_version().decode()


class _Descriptor:
    """Base of all sockets. Addresses are pairs (node, port)."""

    _fd = -1

    def fileno(self):
        return self._fd

    def setsockopt(self, option, value):
        _setsockopt(self._fd, option, byref(c_int(value)), sizeof(c_int))

    def getsockopt(self, option):
        value = c_int()
        _getsockopt(self._fd, option, byref(value), byref(c_size_t(sizeof(value))))
        return value.value

    def setblocking(self, on):
        """Sets whether calls wait; otherwise they raise BlockingIOError."""
        self.setsockopt(NONBLOCK, int(not on))

    def getsockname(self):
        address = _Addr()
        _getsockname(self._fd, byref(address))
        return address.node, address.port

    def close(self):
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            _close(fd)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Socket(_Descriptor):
    """A datagram socket. It is notified when a destination becomes unreachable or reachable;
    status() returns the details."""

    def __init__(self, attachment):
        self._fd = _socket(os.fsencode(attachment))

    def bind(self, port=0):
        _bind(self._fd, port)

    def sendto(self, data, address, flags=0):
        """Sends a packet. Never waits, except for room for best-effort packets with
        setsockopt(BLOCKING, 1)."""
        return _sendto(self._fd, bytes(data), len(data), flags, byref(_Addr(*address)))

    def recvfrom(self, size=9000, flags=0):
        data, sender = ctypes.create_string_buffer(size), _Addr()
        length = _recvfrom(self._fd, data, size, flags, byref(sender))
        return data.raw[:length], (sender.node, sender.port)

    def status(self):
        """Returns the change behind an OSError of recvfrom or sendto whose number is
        EHOSTUNREACH, ECONNREFUSED or EREMCHG: the next Reachable or Unreachable, or None."""
        status = _Status()
        try:
            _status(self._fd, byref(status))
        except OSError as error:
            if error.errno == errno.ENOMSG:
                return None
            raise
        to = status.to.node, status.to.port
        if status.why == 0:
            return Reachable(to)
        why = {1: "no route", 2: "unreachable since", 3: "no port"}[status.why]
        return Unreachable(to, why, status.since_ms / 1000 if status.why == 2 else None)


class StreamSocket(_Descriptor):
    """One end of a stream. One thread may read while another writes."""

    def __init__(self, attachment, messages=False):
        self._fd = _stream_socket(os.fsencode(attachment))
        self.setsockopt(MESSAGES, int(messages))

    @classmethod
    def _accepted(cls, fd):
        stream = cls.__new__(cls)
        stream._fd = fd
        return stream

    def bind(self, port=0):
        """Sets the local virtual port of the stream."""
        _bind(self._fd, port)

    def connect(self, address):
        _connect(self._fd, byref(_Addr(*address)))

    def recv(self, size):
        """Returns at least one byte and at most `size`; none at the end of the stream."""
        data = ctypes.create_string_buffer(size)
        length = _read(self._fd, data, size)
        return data.raw[:length]

    def read(self):
        """Returns all data until the end of the stream."""
        return b"".join(iter(lambda: self.recv(1 << 16), b""))

    def send(self, data):
        """Sends as many bytes as the node accepts now, and returns their number."""
        return _write(self._fd, bytes(data), len(data))

    def sendall(self, data):
        data = memoryview(data).cast("B")
        while data:
            data = data[self.send(data[: 1 << 16]) :]

    def shutdown(self):
        """Ends this direction: the other end reads the end of the stream."""
        _shutdown(self._fd)

    def reset(self):
        """Resets the stream."""
        _reset(self._fd)

    def send_message(self, message):
        """Sends one message of a stream with `messages`, which must be blocking."""
        if len(message) > MAX_STREAM_MESSAGE:
            raise OSError(errno.EMSGSIZE, "the message has more than 16 MiB")
        self.sendall(len(message).to_bytes(4, "big") + message)

    def recv_message(self):
        """Returns the next message of a stream with `messages`, which must be blocking; None
        at the end of the stream."""
        length = self._recv_exactly(4)
        if not length:
            return None
        length = int.from_bytes(length, "big")
        if length > MAX_STREAM_MESSAGE:
            raise OSError(errno.EMSGSIZE, "the message has more than 16 MiB")
        message = self._recv_exactly(length)
        if len(message) < length:
            raise EOFError("the stream ends within a message")
        return message

    def _recv_exactly(self, size):
        data = bytearray()
        while len(data) < size:
            more = self.recv(min(size - len(data), 1 << 16))
            if not more:
                if data:
                    raise EOFError("the stream ends within a message")
                break
            data += more
        return bytes(data)


class StreamListener(_Descriptor):
    """Accepts incoming streams at a virtual port; 0 is any free one. It reconnects
    automatically after a restart of the node, and takes its port again."""

    def __init__(self, attachment, port=0, backlog=32):
        self._fd = _stream_socket(os.fsencode(attachment))
        try:
            _bind(self._fd, port)
            _listen(self._fd, backlog)
        except OSError:
            self.close()
            raise

    def accept(self):
        """Waits for the next stream; returns it and the address of its other end."""
        sender = _Addr()
        stream = StreamSocket._accepted(_accept(self._fd, byref(sender)))
        return stream, (sender.node, sender.port)


class _Transport(asyncio.Transport):
    """A stream on asyncio. Its one descriptor becomes readable for reading and, after a
    send that would have blocked, for writing."""

    # Seconds between attempts to write while no reader waits: the descriptor may then be
    # readable all the time.
    _RETRY = 0.02

    def __init__(self, loop, stream, protocol, peer):
        super().__init__({"peername": peer, "sockname": stream.getsockname(), "socket": stream})
        self._loop, self._stream, self._protocol = loop, stream, protocol
        self._buffer, self._retry, self._watching = bytearray(), None, False
        self._reading, self._ended, self._eof, self._shut = True, False, False, False
        self._closing = self._lost = self._paused = False
        self.set_write_buffer_limits()
        stream.setblocking(False)
        protocol.connection_made(self)
        self._watch()

    def _watch(self):
        """Watches the descriptor only while there is data to read or to write."""
        pending = bool(self._buffer or self._eof and not self._shut or self._closing)
        # After the end was read, only writing remains.
        want = self._ended and pending or self._reading and not self._closing
        want = want and not self._lost
        if want != self._watching:
            self._watching = want
            if want:
                self._loop.add_reader(self._stream.fileno(), self._ready)
            else:
                self._loop.remove_reader(self._stream.fileno())
        if pending and not want and not self._lost and self._retry is None:
            self._retry = self._loop.call_later(self._RETRY, self._try_again)

    def _try_again(self):
        self._retry = None
        self._flush()

    def _ready(self):
        self._flush()
        if self._ended or not self._reading or self._closing:
            return
        try:
            data = self._stream.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(error)
            return
        if data:
            self._protocol.data_received(data)
            return
        self._reading, self._ended = False, True
        if not self._protocol.eof_received():
            self.close()
        self._watch()

    def _flush(self):
        """Sends the buffered data, and then the end if it is due."""
        if self._lost:
            return
        try:
            while self._buffer:
                del self._buffer[: self._stream.send(self._buffer[: 1 << 16])]
            if (self._eof or self._closing) and not self._shut:
                self._stream.shutdown()
                self._shut = True
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(error)
            return
        if self._paused and len(self._buffer) <= self._low:
            self._paused = False
            self._protocol.resume_writing()
        if self._closing and self._shut:
            self._lose(None)
        self._watch()

    def _lose(self, error):
        if not self._lost:
            self._lost = self._closing = True
            self._watch()
            if self._retry is not None:
                self._retry.cancel()
            self._loop.call_soon(self._finish, error)

    def _finish(self, error):
        self._stream.close()
        self._protocol.connection_lost(error)

    def write(self, data):
        if self._eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing or not data:
            return
        self._buffer += data
        self._flush()
        if not self._paused and len(self._buffer) > self._high:
            self._paused = True
            self._protocol.pause_writing()

    def can_write_eof(self):
        return True

    def write_eof(self):
        if not self._eof:
            self._eof = True
            self._flush()

    def close(self):
        if not self._closing:
            self._closing = True
            self._flush()

    def abort(self):
        if not self._lost:
            try:
                self._stream.reset()
            except OSError:
                pass
            self._lose(None)

    def is_closing(self):
        return self._closing

    def pause_reading(self):
        self._reading = False
        self._watch()

    def resume_reading(self):
        self._reading = not self._ended
        self._watch()

    def is_reading(self):
        return self._reading and not self._closing

    def set_write_buffer_limits(self, high=None, low=None):
        self._high = 65536 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self):
        return len(self._buffer)

    def get_write_buffer_limits(self):
        return self._low, self._high

    def set_protocol(self, protocol):
        self._protocol = protocol

    def get_protocol(self):
        return self._protocol


async def open_stream(attachment, address, port=0, messages=False):
    """Opens a stream, as asyncio.open_connection does: a StreamReader and a
    StreamWriter."""
    loop = asyncio.get_running_loop()
    stream = StreamSocket(attachment, messages)
    try:
        stream.bind(port)
        await loop.run_in_executor(None, stream.connect, address)
    except BaseException:
        stream.close()
        raise
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport = _Transport(loop, stream, protocol, tuple(address))
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class Server:
    """A server, as returned by start_server."""

    def __init__(self, loop, listener, connected):
        self._loop, self._listener, self._connected = loop, listener, connected
        self._closed = loop.create_future()
        listener.setblocking(False)
        loop.add_reader(listener.fileno(), self._accept)

    def getsockname(self):
        return self._listener.getsockname()

    def _accept(self):
        while True:
            try:
                stream, peer = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # no error ends the listener
                what = {"message": "a stream could not be accepted", "exception": error}
                self._loop.call_exception_handler(what)
                return
            reader = asyncio.StreamReader(loop=self._loop)
            protocol = asyncio.StreamReaderProtocol(reader, self._connected, loop=self._loop)
            _Transport(self._loop, stream, protocol, peer)

    def close(self):
        """Stops accepting streams; accepted streams stay open."""
        if not self._closed.done():
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._closed.set_result(None)

    async def serve_forever(self):
        await asyncio.shield(self._closed)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.close()


async def start_server(connected, attachment, port=0, backlog=32):
    """Calls `connected(reader, writer)`, which may be a coroutine function, for each
    incoming stream, as asyncio.start_server does."""
    loop = asyncio.get_running_loop()
    listener = await loop.run_in_executor(None, StreamListener, attachment, port, backlog)
    return Server(loop, listener, connected)
