"""Datagram sockets over an overlay of trunkline nodes.

    with Socket("/run/trunkline/node.sock") as socket:
        socket.bind(0)
        socket.sendto(b"hello", (7, 4000))
        data, (node, port) = socket.recvfrom()

A node on another host is "tcp://HOST:PORT?node=PUBKEY&key=FILE": its public key,
and the file with this application's own, as `trunkline keygen` makes it.

Errors are OSError with the numbers that trunkline.h explains, so that Python's
own subclasses fit: BlockingIOError when nothing has come, ConnectionResetError
once after the node was away. With Socket(…, status=True) the socket is told once
when packets don't get to where they go, and once when they do again:

    except OSError as error:
        if (status := socket.status()) is not None:
            print(status)    # Unreachable(to=(7, 4000), why='no route', since=None)

A socket has a fileno(): give it to selectors, or
to an asyncio loop's add_reader. (Ctrl-C doesn't interrupt a recvfrom or sendto that
waits, but it does interrupt those.)
"""

import ctypes
import errno
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ssize_t, c_uint16, c_uint32, c_void_p, sizeof
from typing import NamedTuple, Optional, Tuple

SERVICE, DEADLINE_MS, NONBLOCK, RCVTIMEO_MS, MAX_PAYLOAD, METRIC, STATUS, LATE, WAIT = range(1, 10)
BEST_EFFORT, REAL_TIME = 1, 2
EXPECTED_LATENCY, LATENCY, LOSS, HOPS = range(1, 5)
DONTWAIT = 0x40


class _Addr(ctypes.Structure):
    _fields_ = [("node", c_uint32), ("port", c_uint16)]


class _Status(ctypes.Structure):
    _fields_ = [("to", _Addr), ("why", c_int), ("since_ms", c_int)]


class Reachable(NamedTuple):
    """Packets get to the address `to` again, as far as is known."""

    to: Tuple[int, int]


class Unreachable(NamedTuple):
    """Packets don't get to the address `to`: `why` is "no route", "unreachable
    since" (so many seconds) or "no port"."""

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


def version():
    return _lib.tl_version().decode()


class Socket:
    """A datagram socket; addresses are pairs (node, port). With `status` it is
    told what becomes of its packets, and status() says what."""

    def __init__(self, attachment, status=False):
        self._fd = -1
        self._fd = _socket(os.fsencode(attachment))
        self.setsockopt(STATUS, int(status))

    def fileno(self):
        return self._fd

    def bind(self, port=0):
        _bind(self._fd, port)

    def sendto(self, data, address, flags=0):
        """Sends a packet. Best effort with setsockopt(WAIT, 1) waits for room;
        nothing else waits."""
        return _sendto(self._fd, bytes(data), len(data), flags, byref(_Addr(*address)))

    def recvfrom(self, size=9000, flags=0):
        data, sender = ctypes.create_string_buffer(size), _Addr()
        length = _recvfrom(self._fd, data, size, flags, byref(sender))
        return data.raw[:length], (sender.node, sender.port)

    def setsockopt(self, option, value):
        _setsockopt(self._fd, option, byref(c_int(value)), sizeof(c_int))

    def getsockopt(self, option):
        value = c_int()
        _getsockopt(self._fd, option, byref(value), byref(c_size_t(sizeof(value))))
        return value.value

    def getsockname(self):
        address = _Addr()
        _getsockname(self._fd, byref(address))
        return address.node, address.port

    def status(self):
        """What an OSError of recvfrom or sendto was about: the next Reachable or
        Unreachable; None if there is none. The error's number is EHOSTUNREACH,
        ECONNREFUSED or EREMCHG."""
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

    def close(self):
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            _close(fd)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
