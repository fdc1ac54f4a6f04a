"""Keys, macs and the Noise handshake between nodes (docs/protocol.md, sections 2 and 4)."""

import base64
import hashlib
import hmac
import struct
from typing import Tuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VERSION = 1
MTU = 1280
FIELD = 2**255 - 19


def read_base64(path: str) -> bytes:
    with open(path, encoding="ascii") as file:
        return base64.b64decode(file.read().strip())


def digest(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hashlib.sha256).digest()


def x25519_of(ed25519: bytes) -> bytes:
    """The X25519 public key of an Ed25519 one."""
    y = int.from_bytes(ed25519, "little") & ((1 << 255) - 1)
    return ((1 + y) * pow(1 - y, FIELD - 2, FIELD) % FIELD).to_bytes(32, "little")


class Identity:
    """A node's key, from its seed."""

    def __init__(self, seed: bytes) -> None:
        self._signing = Ed25519PrivateKey.from_private_bytes(seed)
        self.agreement = X25519PrivateKey.from_private_bytes(hashlib.sha512(seed).digest()[:32])
        self.agreement_public = self.agreement.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        return self._signing.sign(message)


def with_mac(message: bytes, responder: bytes) -> bytes:
    """An initiation with its mac at offset 1; `responder` is an X25519 public key."""
    key = digest(b"trunkline initiation", responder)
    return message[:1] + digest(key, message[:1] + message[17:])[:16] + message[17:]


def payload(index: bytes, node: int, incarnation: int, time_ns: int, certificate: bytes) -> bytes:
    """The payload of an initiation, which describes its sender: no capabilities, and the empty path label."""
    head = struct.pack(">BB3sIQQIHB", VERSION, VERSION, index, node, incarnation, time_ns, 0, MTU, 0)
    return head + struct.pack(">H", len(certificate)) + certificate


class Handshake:
    """The initiator's side of Noise_IK_25519_AESGCM_SHA256."""

    def __init__(self, identity: Identity, responder: bytes) -> None:
        self._identity = identity
        self._responder = X25519PublicKey.from_public_bytes(responder)
        self._ephemeral = X25519PrivateKey.generate()
        self._chain = self._hash = b"Noise_IK_25519_AESGCM_SHA256".ljust(32, b"\0")
        self._key = b""
        self._mix_hash(b"trunkline handshake 1")
        self._mix_hash(responder)

    def _mix_hash(self, data: bytes) -> None:
        self._hash = hashlib.sha256(self._hash + data).digest()

    def _derive(self, secret: bytes) -> Tuple[bytes, bytes]:
        base = digest(self._chain, secret)
        first = digest(base, b"\1")
        return first, digest(base, first + b"\2")

    def _mix_key(self, secret: bytes) -> None:
        self._chain, self._key = self._derive(secret)

    # Each key seals one message here, so the nonce is 0.
    def _encrypt(self, text: bytes) -> bytes:
        sealed = AESGCM(self._key).encrypt(bytes(12), text, self._hash)
        self._mix_hash(sealed)
        return sealed

    def _decrypt(self, sealed: bytes) -> bytes:
        text = AESGCM(self._key).decrypt(bytes(12), sealed, self._hash)
        self._mix_hash(sealed)
        return text

    def initiation(self, text: bytes) -> bytes:
        ephemeral = self._ephemeral.public_key().public_bytes_raw()
        self._mix_hash(ephemeral)
        self._mix_key(self._ephemeral.exchange(self._responder))
        static = self._encrypt(self._identity.agreement_public)
        self._mix_key(self._identity.agreement.exchange(self._responder))
        return ephemeral + static + self._encrypt(text)

    def response(self, message: bytes) -> Tuple[bytes, bytes, bytes]:
        """The responder's payload, and the keys to seal and to open with."""
        ephemeral = X25519PublicKey.from_public_bytes(message[:32])
        self._mix_hash(message[:32])
        self._mix_key(self._ephemeral.exchange(ephemeral))
        self._mix_key(self._identity.agreement.exchange(ephemeral))
        return (self._decrypt(message[32:]), *self._derive(b""))
