"""TLS between nodes, beside the cluster's secret: what is said is hidden, and nobody stands between.

Both ends show certificates that a CA of the cluster has signed. The secret still says which node is which, and is bound
to both certificates: whoever has a certificate and not the secret can neither speak nor pass on what others say.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from typing import Final, cast

from chronik.addresses import network_of
from chronik.peers.connection import HANDSHAKE_SECONDS_MAX, PeerConnection
from chronik.scheduler import Account, AccountShare, LoopShare, Scheduler, Work
from chronik.tls.contexts import TlsContext, keep_up_to_date
from chronik.tls.settings import REQUIRED, Source, TlsSettings
from chronik.tls.transport import TlsTransport

SLICES_PER_ITERATION: Final = 32
"""What is encrypted of a large message before others have a turn: two megabytes, a millisecond or two."""

_TLS_HANDSHAKE: Final = 0x16
"""The first byte of a connection with TLS. Without it a frame's length comes first, whose first byte is 0 by then."""


class PeerTls:
    """How this node speaks to its peers."""

    def __init__(self, keystore: str, truststore: str, *, is_required: bool) -> None:
        """`keystore` is a PEM file with the node's key and certificate, `truststore` one with the cluster's CAs. While
        it is not required, peers may speak without it: so a cluster changes over node by node. Raises ConfigError."""
        store = Source("peer_keystore", keystore)
        settings = TlsSettings(store, store, Source("peer_truststore", truststore), REQUIRED)
        self.context: Final = TlsContext("the peers' port", settings, dials_too=True)
        self.is_required: Final = is_required
        self.scheduler = Scheduler()
        """Of handshakes that other hosts began: unauthenticated clients share the time among themselves. `strangers`
        limits how many there are."""

    async def keep_up_to_date(self) -> None:
        """Follows its files until cancelled."""
        await keep_up_to_date([self.context])

    def accept(self, connection: PeerConnection) -> asyncio.BaseProtocol:
        """Returns what takes a new connection, which another node has dialled, in hand."""
        if self.is_required:
            return self._accepting(connection)
        return _FirstByte(connection, lambda: self._accepting(connection))

    def _accepting(self, connection: PeerConnection) -> TlsTransport:
        loaded = self.context.loaded
        shaking = _Shaking(connection, self.scheduler, lambda peer: peer + loaded.fingerprint)
        return TlsTransport(shaking, loaded.accepting)

    def dial(self, connection: PeerConnection, on_failure: Callable[[], None]) -> TlsTransport:
        loaded = self.context.loaded
        assert loaded.dialling is not None
        shaking = _Shaking(connection, None, lambda peer: loaded.fingerprint + peer, on_failure)
        return TlsTransport(shaking, loaded.dialling, dials=True)


class _PeerShare:
    """The share of an authenticated peer: it never queues, and yields after every few slices of a large message."""

    def __init__(self) -> None:
        self._left = SLICES_PER_ITERATION

    def run(self, work: Work) -> None:
        work.resume()

    def may_continue(self) -> bool:
        self._left -= 1
        return self._left > 0

    def submit(self, work: Work) -> None:
        self._left = SLICES_PER_ITERATION
        asyncio.get_running_loop().call_soon(work.resume)

    def withdraw(self, work: Work) -> None: ...

    def charge(self, seconds: float) -> None: ...


class _Shaking:
    """The owner of one connection's TLS handshake."""

    handshake_seconds: Final = HANDSHAKE_SECONDS_MAX

    def __init__(
        self,
        connection: PeerConnection,
        scheduler: Scheduler | None,
        bound: Callable[[bytes], bytes],
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        """A handshake that this node began needs no `scheduler`. `bound` makes of the other end's fingerprint what the
        cluster's secret is bound to: that of the node that dialled, and that of the other."""
        self._scheduler = scheduler
        self._account: Account | None = None
        self._connection = connection
        self._bound = bound
        self._on_failure = on_failure

    def handshake_began(self, transport: TlsTransport) -> bool:
        if self._connection.is_closing:  # closed between its arrival and this call
            return False
        self._connection.arrived(transport.host, transport.port, transport.abort)
        share: LoopShare = _PeerShare()
        if self._scheduler is not None:
            account = self._account = self._scheduler.open_account(network_of(transport.host), is_authenticated=False)
            share = AccountShare(self._scheduler, lambda: account)
        transport.share = share
        return True

    def handshake_done(self, transport: TlsTransport) -> asyncio.BufferedProtocol:
        certificate = transport.peer_certificate
        assert certificate is not None, "both ends must show one"
        self._connection.bind_to(self._bound(hashlib.sha256(certificate).digest()))
        self._close_account()
        transport.share = _PeerShare()
        return self._connection

    def _close_account(self) -> None:
        if self._account is not None and self._scheduler is not None:
            self._scheduler.close_account(self._account)
            self._account = None

    def handshake_failed(self, transport: TlsTransport, reason: str | None) -> None:
        """What we have ended ourselves says nothing about the other end."""
        self._close_account()
        if self._on_failure is not None and not self._connection.is_closing:
            self._on_failure()
        self._connection.close(reason or "closed by the other end during the TLS handshake", logging.WARNING)
        self._connection.connection_lost(None)


class _FirstByte(asyncio.Protocol):
    """Sees by the first byte whether a connection has TLS, and hands it over."""

    def __init__(self, connection: PeerConnection, secured: Callable[[], TlsTransport]) -> None:
        self._connection = connection
        self._secured = secured
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        host, port = name[:2] if isinstance(name, tuple) else ("?", 0)
        if self._connection.is_closing:
            self._transport.abort()
            return
        self._connection.arrived(host, port, self._transport.abort)
        asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS_MAX, self._is_late)

    def _is_late(self) -> None:
        if not self._connection.has_begun:
            self._connection.close(f"no data received within {HANDSHAKE_SECONDS_MAX:.0f} s")

    def data_received(self, data: bytes) -> None:
        next_one = self._secured() if data[0] == _TLS_HANDSHAKE else self._connection
        self._transport.set_protocol(next_one)
        next_one.connection_made(self._transport)
        rest = memoryview(data)
        while rest and not self._transport.is_closing():
            buffer = next_one.get_buffer(-1)
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            next_one.buffer_updated(count)
            rest = rest[count:]

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.connection_lost(error)
