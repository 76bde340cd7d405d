"""How two nodes show each other that they know the cluster's secret, before a word of anything else. Pure.

    dialer    -> Hello       which cluster, from whom, to whom, a nonce
    acceptor  -> Challenge   a nonce
    dialer    -> Proof       HMAC-SHA256 over "dialer", the hello and the challenge
    acceptor  -> Welcome     HMAC-SHA256 over "acceptor", the hello and the challenge

The secret never travels. Both nonces, the cluster and both node ids are under both MACs, so that none can be used
for another connection, another node or the other direction. The dialer proves itself first: whoever just connects to
the port learns nothing that a guess at the secret could be checked against.

It keeps strangers out. It does not hide or seal what is said afterwards: for networks that others can write to TLS does
(`securing`). Then the hello, and with it both MACs, also has the fingerprints of both certificates, as the dialer sees
them: who stands between two nodes, with certificates of their own, is found out.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import secrets
from collections.abc import Iterable
from typing import Annotated, Final, Protocol, TypeVar

import msgspec
from msgspec import Meta

from chronik.errors import ChronikError, ConfigError

logger = logging.getLogger("chronik.raft")

VERSION: Final = 1
VERSION_WITH_TLS: Final = 2
"""Is spoken over TLS, and only there: so nodes of earlier versions, which know nothing of it, are understood."""
MAGIC: Final = "chronik-peer"
NONCE_BYTES: Final = 32

CLUSTER_NAME_BYTES_MAX: Final = 200
"""The name travels in the hello, which must stay small."""

SECRET_CHARACTERS_MIN: Final = 16
"""Shorter secrets can be guessed by somebody who has overheard a handshake."""

_KEY_FROM_SECRET: Final = b"chronik peer key from a secret"
_KEY_FROM_NAME: Final = b"chronik peer key from a cluster's name"

Nonce = Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
Fingerprints = Annotated[bytes, Meta(min_length=64, max_length=64)]
"""SHA-256 of the dialer's certificate, then of the acceptor's."""
Mac = Annotated[bytes, Meta(min_length=32, max_length=32)]


class HandshakeFailed(ChronikError):
    """The other end is not a node of this cluster, or took us for another one; the message is its one log line."""


class Hello(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    magic: str
    version: int
    cluster: str
    source: int
    target: int
    nonce: Nonce


class BoundHello(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    magic: str
    version: int
    cluster: str
    source: int
    target: int
    nonce: Nonce
    certificates: Fingerprints


class Challenge(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    nonce: Nonce


class Proof(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    mac: Mac


class Identity(msgspec.Struct, frozen=True):
    """Who this node is, and the key by which its cluster knows its own."""

    cluster: str
    node_id: int
    key: bytes

    def __repr__(self) -> str:
        """Without the key: it must not get into a log with the rest."""
        return f"Identity({self.cluster!r}, {self.node_id})"


def make_identity(cluster: str, node_id: int, secret: str | None, hosts: Iterable[str]) -> Identity:
    """Without a secret the key is made from the cluster's name, which anybody may know: that is allowed only when all
    `hosts`, our own and the peers', are on this machine. Raises ConfigError."""
    if not 0 < len(cluster.encode()) <= CLUSTER_NAME_BYTES_MAX:
        raise ConfigError(f"the name of a cluster has 1 to {CLUSTER_NAME_BYTES_MAX} bytes")
    if secret is not None:
        if len(secret) < SECRET_CHARACTERS_MIN:
            raise ConfigError(f"the secret of a cluster has at least {SECRET_CHARACTERS_MIN} characters")
        return Identity(cluster, node_id, _mac(secret.encode(), _KEY_FROM_SECRET))
    exposed = sorted(host for host in hosts if not _is_loopback(host))
    if exposed:
        raise ConfigError(f"peers on other machines ({', '.join(exposed)}) need a cluster secret")
    logger.warning("no cluster secret: every process on this machine can speak as a node of cluster %s", cluster)
    return Identity(cluster, node_id, _mac(cluster.encode(), _KEY_FROM_NAME))


class Handshake(Protocol):
    peer: int
    """The node at the other end; -1 while it is not known."""
    is_done: bool
    certificates: bytes
    """The fingerprints of both ends' certificates, with TLS; set before it begins."""

    def begin(self) -> bytes | None:
        """Returns what to say first, if this end has to begin."""

    def receive(self, step: bytes) -> bytes | None:
        """Returns what to answer. Raises HandshakeFailed."""


class DialerHandshake:
    def __init__(self, identity: Identity, target: int) -> None:
        self.peer = target
        self.is_done = False
        self.certificates = b""
        self._identity = identity
        self._hello = b""
        self._challenge = b""

    def begin(self) -> bytes:
        identity = self._identity
        nonce = secrets.token_bytes(NONCE_BYTES)
        told = (identity.cluster, identity.node_id, self.peer, nonce)
        if self.certificates:
            self._hello = _encoder.encode(BoundHello(MAGIC, VERSION_WITH_TLS, *told, self.certificates))
        else:
            self._hello = _encoder.encode(Hello(MAGIC, VERSION, *told))
        return self._hello

    def receive(self, step: bytes) -> bytes | None:
        key = self._identity.key
        if not self._challenge:
            _decode(Challenge, step)
            self._challenge = step
            return _encoder.encode(Proof(_mac(key, b"dialer", self._hello, self._challenge)))
        welcome = _decode(Proof, step)
        _check(welcome.mac, _mac(key, b"acceptor", self._hello, self._challenge))
        self.is_done = True
        return None


class AcceptorHandshake:
    def __init__(self, identity: Identity) -> None:
        self.peer = -1
        self.is_done = False
        self.certificates = b""
        self._identity = identity
        self._hello = b""
        self._challenge = b""

    def begin(self) -> None:
        return None

    def receive(self, step: bytes) -> bytes:
        if not self._hello:
            return self._greeted(step)
        key = self._identity.key
        _check(_decode(Proof, step).mac, _mac(key, b"dialer", self._hello, self._challenge))
        self.is_done = True
        return _encoder.encode(Proof(_mac(key, b"acceptor", self._hello, self._challenge)))

    def _greeted(self, step: bytes) -> bytes:
        hello = _decode(BoundHello, step) if self.certificates else _decode(Hello, step)
        version = VERSION_WITH_TLS if self.certificates else VERSION
        identity = self._identity
        if hello.magic != MAGIC:
            raise HandshakeFailed("not a node of Chronik")
        if hello.version != version:
            raise HandshakeFailed(f"it speaks version {hello.version} of the peer protocol, we speak {version}")
        if isinstance(hello, BoundHello) and hello.certificates != self.certificates:
            raise HandshakeFailed("it sees other certificates than this end: somebody stands between")
        if hello.cluster != identity.cluster:
            raise HandshakeFailed(f"it belongs to the cluster {hello.cluster[:CLUSTER_NAME_BYTES_MAX]!r}")
        if hello.target != identity.node_id:
            raise HandshakeFailed(f"it looks for node {hello.target}, this is node {identity.node_id}")
        if hello.source == identity.node_id or hello.source < 0:
            raise HandshakeFailed(f"it calls itself node {hello.source}")
        self.peer = hello.source
        self._hello = step
        self._challenge = _encoder.encode(Challenge(secrets.token_bytes(NONCE_BYTES)))
        return self._challenge


_encoder: Final = msgspec.msgpack.Encoder()
_Step = TypeVar("_Step")


def _decode(kind: type[_Step], step: bytes) -> _Step:
    try:
        return msgspec.msgpack.decode(step, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise HandshakeFailed(f"no {kind.__name__.lower()}: {error}") from error


def _mac(key: bytes, *parts: bytes) -> bytes:
    """Puts the length of each part before it, so that no other parts give the same bytes."""
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        mac.update(len(part).to_bytes(4, "big"))
        mac.update(part)
    return mac.digest()


def _check(given: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(given, expected):
        raise HandshakeFailed("it does not know the cluster's secret")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
