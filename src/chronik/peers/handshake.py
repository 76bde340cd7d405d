"""Mutual authentication of two nodes with the cluster secret.

    dialer    -> Hello       cluster, source node, target node, nonce
    acceptor  -> Challenge   nonce
    dialer    -> Proof       HMAC-SHA256 over "dialer", the hello and the challenge
    acceptor  -> Welcome     HMAC-SHA256 over "acceptor", the hello and the challenge

The secret is never sent. Both MACs cover both nonces, the cluster and both node ids, so that they cannot be replayed on
another connection, for another node or in the other direction. The dialer authenticates first: a client that only
connects receives nothing that allows an offline attack on the secret.

The handshake does not encrypt or protect later data; TLS does (`tls`). With TLS, the hello and both MACs also contain
the fingerprints of both certificates as the dialer sees them, which detects a man in the middle.
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
"""The version of the peer handshake over TLS. Without TLS, version 1 keeps connections to older nodes possible."""
MAGIC: Final = "chronik-peer"
NONCE_BYTES: Final = 32

CLUSTER_NAME_BYTES_MAX: Final = 200
"""The maximum length of the cluster name in the peer handshake, in bytes."""

SECRET_CHARACTERS_MIN: Final = 16
"""The minimum length of the cluster's secret in characters, which makes brute-force attacks on it infeasible."""

_KEY_FROM_SECRET: Final = b"chronik peer key from a secret"
_KEY_FROM_NAME: Final = b"chronik peer key from a cluster's name"

Nonce = Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
Fingerprints = Annotated[bytes, Meta(min_length=64, max_length=64)]
"""The concatenated SHA-256 fingerprints of the certificates at both ends of a TLS connection, the dialer's first."""
Mac = Annotated[bytes, Meta(min_length=32, max_length=32)]


class HandshakeFailed(ChronikError):
    """The peer handshake failed, because the other end is not the intended node of this cluster."""


class Hello(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The first message of the peer handshake, sent by the dialing node."""

    magic: str
    version: int
    cluster: str
    source: int
    target: int
    nonce: Nonce


class TlsHello(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The first message of the peer handshake over TLS, which contains the fingerprints of both certificates."""

    magic: str
    version: int
    cluster: str
    source: int
    target: int
    nonce: Nonce
    certificate_fingerprints: Fingerprints


class HandshakeChallenge(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The acceptor's response to a hello, which challenges the dialer to prove that it knows the cluster's key."""

    nonce: Nonce


class HandshakeProof(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The message in the peer handshake that proves that its sender knows the cluster's key."""

    mac: Mac


class PeerIdentity(msgspec.Struct, frozen=True):
    """The identity of a node in the peer handshake: its cluster, its node id and the cluster's key."""

    cluster: str
    node_id: int
    key: bytes

    def __repr__(self) -> str:
        """Return a representation without the key, which must not appear in logs."""
        return f"Identity({self.cluster!r}, {self.node_id})"


def derive_identity(cluster: str, node_id: int, secret: str | None, hosts: Iterable[str]) -> PeerIdentity:
    """Return a node's identity with the key that is derived from the cluster's secret.

    Without a secret, the key is derived from the cluster's name, which is public. This is allowed only if all `hosts`
    (those of this node and of its peers) are loopback addresses. Raises ConfigError.
    """
    if not 0 < len(cluster.encode()) <= CLUSTER_NAME_BYTES_MAX:
        raise ConfigError(f"invalid cluster name {cluster!r}: must have 1 to {CLUSTER_NAME_BYTES_MAX} bytes")
    if secret is not None:
        if len(secret) < SECRET_CHARACTERS_MIN:
            raise ConfigError(f"cluster secret is too short: must have at least {SECRET_CHARACTERS_MIN} characters")
        return PeerIdentity(cluster, node_id, _compute_mac(secret.encode(), _KEY_FROM_SECRET))
    exposed = sorted(host for host in hosts if not _is_loopback_host(host))
    if exposed:
        raise ConfigError(f"peers on other machines ({', '.join(exposed)}) require a cluster secret")
    logger.warning(
        "cluster %s has no secret: any process on this machine can join as a node; set a secret to prevent this",
        cluster,
    )
    return PeerIdentity(cluster, node_id, _compute_mac(cluster.encode(), _KEY_FROM_NAME))


class PeerHandshake(Protocol):
    """The interface to one end of the handshake by which two nodes authenticate each other."""

    peer: int
    """Node id of the other end; -1 while it is unknown."""
    is_done: bool
    certificate_fingerprints: bytes
    """The fingerprints of both certificates of the TLS connection, or empty bytes without TLS."""

    def start(self) -> bytes | None:
        """Return the first message of the handshake, or None if the other end sends it."""

    def receive(self, step: bytes) -> bytes | None:
        """Process a handshake message and return the response, if any. Raise HandshakeFailed if it is invalid."""


class DialerHandshake:
    """The dialing end of the peer handshake."""

    def __init__(self, identity: PeerIdentity, target: int) -> None:
        self.peer = target
        self.is_done = False
        self.certificate_fingerprints = b""
        self._identity = identity
        self._hello = b""
        self._challenge = b""

    def start(self) -> bytes:
        identity = self._identity
        nonce = secrets.token_bytes(NONCE_BYTES)
        fields = (identity.cluster, identity.node_id, self.peer, nonce)
        if self.certificate_fingerprints:
            self._hello = _encoder.encode(TlsHello(MAGIC, VERSION_WITH_TLS, *fields, self.certificate_fingerprints))
        else:
            self._hello = _encoder.encode(Hello(MAGIC, VERSION, *fields))
        return self._hello

    def receive(self, step: bytes) -> bytes | None:
        key = self._identity.key
        if not self._challenge:
            _decode_handshake_message(HandshakeChallenge, step)
            self._challenge = step
            return _encoder.encode(HandshakeProof(_compute_mac(key, b"dialer", self._hello, self._challenge)))
        welcome = _decode_handshake_message(HandshakeProof, step)
        _verify_mac(welcome.mac, _compute_mac(key, b"acceptor", self._hello, self._challenge))
        self.is_done = True
        return None


class AcceptorHandshake:
    """The accepting end of the peer handshake."""

    def __init__(self, identity: PeerIdentity) -> None:
        self.peer = -1
        self.is_done = False
        self.certificate_fingerprints = b""
        self._identity = identity
        self._hello = b""
        self._challenge = b""

    def start(self) -> None:
        return None

    def receive(self, step: bytes) -> bytes:
        if not self._hello:
            return self._receive_hello(step)
        key = self._identity.key
        _verify_mac(
            _decode_handshake_message(HandshakeProof, step).mac,
            _compute_mac(key, b"dialer", self._hello, self._challenge),
        )
        self.is_done = True
        return _encoder.encode(HandshakeProof(_compute_mac(key, b"acceptor", self._hello, self._challenge)))

    def _receive_hello(self, step: bytes) -> bytes:
        hello = (
            _decode_handshake_message(TlsHello, step)
            if self.certificate_fingerprints
            else _decode_handshake_message(Hello, step)
        )
        version = VERSION_WITH_TLS if self.certificate_fingerprints else VERSION
        identity = self._identity
        if hello.magic != MAGIC:
            raise HandshakeFailed("the other end is not a Chronik node")
        if hello.version != version:
            raise HandshakeFailed(f"unsupported peer protocol version {hello.version} (supported: {version})")
        if isinstance(hello, TlsHello) and hello.certificate_fingerprints != self.certificate_fingerprints:
            raise HandshakeFailed("certificate fingerprints do not match: possible man-in-the-middle attack")
        if hello.cluster != identity.cluster:
            raise HandshakeFailed(f"the node belongs to cluster {hello.cluster[:CLUSTER_NAME_BYTES_MAX]!r}")
        if hello.target != identity.node_id:
            raise HandshakeFailed(f"the hello is for node {hello.target}, this is node {identity.node_id}")
        if hello.source == identity.node_id or hello.source < 0:
            raise HandshakeFailed(f"invalid source node id {hello.source}")
        self.peer = hello.source
        self._hello = step
        self._challenge = _encoder.encode(HandshakeChallenge(secrets.token_bytes(NONCE_BYTES)))
        return self._challenge


_encoder: Final = msgspec.msgpack.Encoder()
_Step = TypeVar("_Step")


def _decode_handshake_message(kind: type[_Step], step: bytes) -> _Step:
    try:
        return msgspec.msgpack.decode(step, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise HandshakeFailed(f"malformed handshake message ({kind.__name__}): {error}") from error


def _compute_mac(key: bytes, *parts: bytes) -> bytes:
    """Return the message authentication code (MAC) of the parts, each prefixed with its length."""
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        mac.update(len(part).to_bytes(4, "big"))
        mac.update(part)
    return mac.digest()


def _verify_mac(received_mac: bytes, expected_mac: bytes) -> None:
    if not hmac.compare_digest(received_mac, expected_mac):
        raise HandshakeFailed("authentication failed: the cluster secrets differ")


def _is_loopback_host(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
