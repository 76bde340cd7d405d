"""TLS for a node's HTTP port, with optional client certificates."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from chronik.console.connection import HttpConnection
from chronik.ip_addresses import client_network
from chronik.limits import TLS_HANDSHAKE_SECONDS_MAX
from chronik.scheduler import Account, AccountBudget, Scheduler
from chronik.server.handshake_limiter import HandshakeLimiter
from chronik.tls.contexts import ReloadableTlsContext, reload_changed_certificates
from chronik.tls.settings import CLIENT_AUTH_NONE, CLIENT_AUTH_REQUESTED, PemSource, TlsSettings
from chronik.tls.transport import TlsTransport

logger = logging.getLogger("chronik.console")

ADDRESS_HANDSHAKES_DIVISOR: Final = 4
"""Each client address may use at most the limit of concurrent TLS handshakes divided by this number."""


class HttpTls:
    """The TLS configuration of the HTTP port."""

    def __init__(self, keystore: str, truststore: str | None) -> None:
        """Load the node's key and certificates, and the CAs that verify client certificates, from PEM files.

        Client certificates are optional: `/healthz` is public, and a token authenticates as well.

        Raises:
            ConfigError: A file cannot be read or is not valid.
        """
        store = PemSource("http_keystore", keystore)
        trust = None if truststore is None else PemSource("http_truststore", truststore)
        settings = TlsSettings(store, store, trust, CLIENT_AUTH_NONE if trust is None else CLIENT_AUTH_REQUESTED)
        self.context: Final = ReloadableTlsContext("the HTTP port", settings)
        self.verifies_clients: Final = trust is not None

    async def reload_certificates(self) -> None:
        """Reload the PEM files when they change, until cancelled."""
        await reload_changed_certificates([self.context])

    def create_acceptor(
        self, handshakes_max: int, connection: Callable[[], HttpConnection], scheduler: Scheduler
    ) -> HttpAcceptor:
        """Return an acceptor of TLS connections that limits the handshakes in progress."""
        return HttpAcceptor(self.context, handshakes_max, connection, scheduler)


class HttpAcceptor:
    """An acceptor of TLS connections that limits the number of handshakes in progress."""

    handshake_seconds: Final = TLS_HANDSHAKE_SECONDS_MAX

    def __init__(
        self,
        context: ReloadableTlsContext,
        handshakes_max: int,
        connection: Callable[[], HttpConnection],
        scheduler: Scheduler,
    ) -> None:
        self._scheduler: Final = scheduler
        self._accounts: dict[TlsTransport, Account] = {}
        self._context = context
        self._connection = connection
        share = max(1, handshakes_max // ADDRESS_HANDSHAKES_DIVISOR)
        self._handshakes: HandshakeLimiter[TlsTransport] = HandshakeLimiter(handshakes_max, share)

    def accept(self) -> TlsTransport:
        """Return a TLS transport that performs the handshake of a new client connection."""
        return TlsTransport(self, self._context.context)

    def stop(self) -> None:
        """Abort all handshakes in progress."""
        for handshake in self._handshakes.all():
            handshake.abort_handshake("the node is shutting down")

    def on_handshake_started(self, transport: TlsTransport) -> bool:
        """Register a TLS handshake and return whether it may proceed. If too many are in progress, abort a slow one."""
        if self._handshakes.must_reject(transport.host):
            return False
        account = self._scheduler.open_account(client_network(transport.host), is_authenticated=False)
        self._accounts[transport] = account
        transport.loop_share = AccountBudget(self._scheduler, lambda: account)
        evicted = self._handshakes.add(transport)
        if evicted is not None:
            evicted.abort_handshake("handshake too slow and other clients are waiting")
        return True

    def on_handshake_done(self, transport: TlsTransport) -> asyncio.BufferedProtocol:
        """Create the HTTP connection after a completed handshake."""
        self._handshakes.remove(transport)
        self._scheduler.close_account(self._accounts.pop(transport))
        connection = self._connection()
        transport.loop_share = AccountBudget(self._scheduler, lambda: connection.loop_account)
        return connection

    def on_handshake_failed(self, transport: TlsTransport, reason: str | None) -> None:
        """Unregister a failed handshake and log the reason."""
        self._handshakes.remove(transport)
        account = self._accounts.pop(transport, None)
        if account is not None:
            self._scheduler.close_account(account)
        if reason is not None:
            logger.info("http connection from %s:%d rejected: %s", transport.host, transport.port, reason)
