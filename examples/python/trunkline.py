"""Datagram sockets over an overlay of trunkline nodes.

    with Socket("/run/trunkline/node.sock") as socket:
        socket.bind(0)
        socket.sendto(b"hello", (7, 4000))
        data, (node, port) = socket.recvfrom()

A node on another host is "tcp://HOST:PORT?node=PUBKEY&key=FILE": its public key,
and the file with this application's own, as `trunkline keygen` makes it.

Errors are OSError with the numbers that trunkline.h explains, so that Python's
own subclasses fit: BlockingIOError when nothing has come, ConnectionResetError
once after the node was away. A socket has a fileno(): give it to selectors, or
to an asyncio loop's add_reader. (Ctrl-C doesn't interrupt a recvfrom that waits,
but it does interrupt those.)
"""

import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ssize_t, c_uint16, c_uint32, c_void_p, sizeof

SERVICE, DEADLINE_MS, NONBLOCK, RCVTIMEO_MS, MAX_PAYLOAD, METRIC = range(1, 7)
LATE = 8
BEST_EFFORT, REAL_TIME = 1, 2
EXPECTED_LATENCY, LATENCY, LOSS, HOPS = range(1, 5)
DONTWAIT = 0x40


class _Addr(ctypes.Structure):
    _fields_ = [("node", c_uint32), ("port", c_uint16)]


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
_close = _function("tl_close", c_int, c_int)


def version():
    return _lib.tl_version().decode()


class Socket:
    """A datagram socket; addresses are pairs (node, port)."""

    def __init__(self, attachment):
        self._fd = -1
        self._fd = _socket(os.fsencode(attachment))

    def fileno(self):
        return self._fd

    def bind(self, port=0):
        _bind(self._fd, port)

    def sendto(self, data, address):
        return _sendto(self._fd, bytes(data), len(data), 0, byref(_Addr(*address)))

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

    def close(self):
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            _close(fd)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
