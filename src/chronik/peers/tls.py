"""TLS between nodes, in addition to the cluster secret.

Both ends present certificates signed by a CA of the cluster. The secret still authenticates the node ids and is bound
to both certificates: a certificate without the secret allows neither impersonation nor a man-in-the-middle attack.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from typing import Final, cast

from chronik.ip_addresses import client_network
from chronik.peers.connection import HANDSHAKE_SECONDS_MAX, PeerConnection
from chronik.scheduler import Account, AccountBudget, EventLoopBudget, Scheduler, Work
from chronik.tls.contexts import ReloadableTlsContext, reload_changed_certificates
from chronik.tls.settings import CLIENT_AUTH_REQUIRED, PemSource, TlsSettings
from chronik.tls.transport import TlsTransport

SLICES_PER_ITERATION: Final = 32
"""The maximum number of 64 kB slices encrypted per event-loop iteration, which takes 1 to 2 ms."""

_TLS_HANDSHAKE: Final = 0x16
"""The first byte of a TLS connection. Connections without TLS start with a zero byte."""


class PeerTls:
    """The TLS configuration of the connections between nodes."""

    def __init__(self, keystore: str, truststore: str, *, is_required: bool) -> None:
        """Load the TLS configuration.

        `keystore` is a PEM file with the node's key and certificate, `truststore` one with the cluster's CAs. If TLS is
        not required, peers may also connect without it, so that a cluster can be migrated node by node. Raises
        ConfigError.
        """
        store = PemSource("peer_keystore", keystore)
        settings = TlsSettings(store, store, PemSource("peer_truststore", truststore), CLIENT_AUTH_REQUIRED)
        self.context: Final = ReloadableTlsContext("peer listener", settings, with_client_context=True)
        self.is_required: Final = is_required
        self.scheduler = Scheduler()
        """Scheduler of incoming handshakes, which share the event loop fairly among unauthenticated clients.

        `unauthenticated` limits their number."""

    async def reload_changed_certificates(self) -> None:
        """Reload the certificate files whenever they change, until cancelled."""
        await reload_changed_certificates([self.context])

    def accept(self, connection: PeerConnection) -> asyncio.BaseProtocol:
        """Return the protocol for an incoming connection."""
        if self.is_required:
            return self._create_acceptor(connection)
        return _TlsDetector(connection, lambda: self._create_acceptor(connection))

    def _create_acceptor(self, connection: PeerConnection) -> TlsTransport:
        loaded = self.context.loaded
        callbacks = _TlsHandshakeCallbacks(connection, self.scheduler, lambda peer: peer + loaded.fingerprint)
        return TlsTransport(callbacks, loaded.server_context)

    def dial(self, connection: PeerConnection, on_failure: Callable[[], None]) -> TlsTransport:
        loaded = self.context.loaded
        assert loaded.client_context is not None
        callbacks = _TlsHandshakeCallbacks(connection, None, lambda peer: loaded.fingerprint + peer, on_failure)
        return TlsTransport(callbacks, loaded.client_context, is_client=True)


class _PeerTlsBudget:
    """The event-loop budget of an authenticated peer's TLS work, which yields after a fixed number of slices.

    Unlike the work of unauthenticated clients, it is never queued.
    """

    def __init__(self) -> None:
        self._slices_left = SLICES_PER_ITERATION

    def run(self, work: Work) -> None:
        work.resume()

    def may_continue(self) -> bool:
        self._slices_left -= 1
        return self._slices_left > 0

    def submit(self, work: Work) -> None:
        self._slices_left = SLICES_PER_ITERATION
        asyncio.get_running_loop().call_soon(work.resume)

    def withdraw(self, work: Work) -> None: ...

    def charge(self, seconds: float) -> None: ...


class _TlsHandshakeCallbacks:
    """The callbacks for the result of a peer connection's TLS handshake."""

    handshake_seconds: Final = HANDSHAKE_SECONDS_MAX

    def __init__(
        self,
        connection: PeerConnection,
        scheduler: Scheduler | None,
        binding: Callable[[bytes], bytes],
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        """Create the callbacks. `scheduler` is None for outgoing connections.

        `binding` computes the fingerprints that the handshake is bound to from the other end's fingerprint.
        """
        self._scheduler = scheduler
        self._account: Account | None = None
        self._connection = connection
        self._binding = binding
        self._on_failure = on_failure

    def on_handshake_started(self, transport: TlsTransport) -> bool:
        if self._connection.is_closing:  # closed before this callback
            return False
        self._connection.set_remote_address(transport.host, transport.port, transport.abort)
        share: EventLoopBudget = _PeerTlsBudget()
        if self._scheduler is not None:
            account = self._account = self._scheduler.open_account(
                client_network(transport.host), is_authenticated=False
            )
            share = AccountBudget(self._scheduler, lambda: account)
        transport.loop_share = share
        return True

    def on_handshake_done(self, transport: TlsTransport) -> asyncio.BufferedProtocol:
        certificate = transport.peer_certificate
        assert certificate is not None, "TLS verifies that both ends have a certificate"
        self._connection.bind_certificates(self._binding(hashlib.sha256(certificate).digest()))
        self._close_scheduler_account()
        transport.loop_share = _PeerTlsBudget()
        return self._connection

    def _close_scheduler_account(self) -> None:
        if self._account is not None and self._scheduler is not None:
            self._scheduler.close_account(self._account)
            self._account = None

    def on_handshake_failed(self, transport: TlsTransport, reason: str | None) -> None:
        """Close the peer connection and report the failed TLS handshake."""
        self._close_scheduler_account()
        if self._on_failure is not None and not self._connection.is_closing:
            self._on_failure()
        self._connection.close(reason or "closed by the other end during the TLS handshake", logging.WARNING)
        self._connection.connection_lost(None)


class _TlsDetector(asyncio.Protocol):
    """An asyncio protocol that detects TLS by the first received byte and switches to the TLS or the plain protocol."""

    def __init__(self, connection: PeerConnection, create_tls: Callable[[], TlsTransport]) -> None:
        self._connection = connection
        self._create_tls = create_tls
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        host, port = name[:2] if isinstance(name, tuple) else ("?", 0)
        if self._connection.is_closing:
            self._transport.abort()
            return
        self._connection.set_remote_address(host, port, self._transport.abort)
        asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS_MAX, self._on_timeout)

    def _on_timeout(self) -> None:
        if not self._connection.has_started:
            self._connection.close(f"no data received within {HANDSHAKE_SECONDS_MAX:.0f} s")

    def data_received(self, data: bytes) -> None:
        protocol = self._create_tls() if data[0] == _TLS_HANDSHAKE else self._connection
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        rest = memoryview(data)
        while rest and not self._transport.is_closing():
            buffer = protocol.get_buffer(-1)
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            protocol.buffer_updated(count)
            rest = rest[count:]

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.connection_lost(error)
