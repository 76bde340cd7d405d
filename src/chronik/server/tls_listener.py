"""TLS listeners: handshakes are limited from accept on, and a client certificate determines the principal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from chronik.ip_addresses import client_network
from chronik.limits import TLS_SUBJECT_CHARACTERS_MAX
from chronik.principals import ANONYMOUS, USER, Principal
from chronik.scheduler import Account, AccountBudget
from chronik.security.certificate_subject import InvalidSubject, format_certificate_subject
from chronik.security.principal_rules import NoMatchingRule, PrincipalRules
from chronik.server.connection import ClientConnection, ConnectionSlot, ListenerLimits
from chronik.server.handshake_limiter import HandshakeLimiter
from chronik.server.listener import ClientListeners
from chronik.tls.contexts import ReloadableTlsContext, reload_changed_certificates
from chronik.tls.transport import TlsConnectionRejected, TlsTransport

logger = logging.getLogger("chronik.server")


class TlsListenerConfig(msgspec.Struct, frozen=True):
    """The TLS configuration of one listener."""

    context: ReloadableTlsContext
    principal_rules: PrincipalRules | None = None
    """Rules that map a certificate's subject to a principal; None if clients authenticate with SASL."""


class TlsListeners:
    """The TLS listeners of a node by name."""

    def __init__(self, listeners: Mapping[str, TlsListenerConfig], listener_limits: ListenerLimits) -> None:
        self._listeners = listeners
        self._handshakes: HandshakeLimiter[TlsTransport] = HandshakeLimiter(
            listener_limits.handshakes, listener_limits.handshakes_per_address
        )

    @property
    def handshake_count(self) -> int:
        """Return the number of TLS handshakes in progress."""
        return len(self._handshakes)

    def protocol_factory(
        self, name: str, listener: ClientListeners, connection: Callable[[], ClientConnection]
    ) -> Callable[[], asyncio.BaseProtocol] | None:
        """Return the protocol factory of the named listener, or None if it does not use TLS."""
        secured = self._listeners.get(name)
        return None if secured is None else _TlsAcceptor(name, secured, listener, self._handshakes, connection).accept

    def background_jobs(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Return the background job that reloads changed certificates."""
        contexts = [listener.context for listener in self._listeners.values()]
        return (lambda: reload_changed_certificates(contexts),)

    def stop(self) -> None:
        """Abort the handshakes in progress."""
        for handshake in self._handshakes.all():
            handshake.abort_handshake("the node is stopping")


class _TlsAcceptor:
    """An acceptor of TLS connections for one listener, which owns each connection until its handshake completes."""

    def __init__(
        self,
        name: str,
        secured: TlsListenerConfig,
        listener: ClientListeners,
        handshakes: HandshakeLimiter[TlsTransport],
        connection: Callable[[], ClientConnection],
    ) -> None:
        """Create the acceptor; `handshakes` is shared by all listeners of the node."""
        self.handshake_seconds: Final = listener.limits.handshake_seconds
        self._name = name
        self._secured = secured
        self._listener = listener
        self._handshakes = handshakes
        self._connection = connection
        self._places: dict[TlsTransport, ConnectionSlot] = {}
        """Slots of the connection limit for clients whose TLS handshake is in progress. The connection takes over the
        slot."""
        self._accounts: dict[TlsTransport, Account] = {}

    def accept(self) -> TlsTransport:
        return TlsTransport(self, self._secured.context.context)

    def on_handshake_started(self, transport: TlsTransport) -> bool:
        """Check the connection limits before the TLS handshake, which costs a thousand times more than a rejection."""
        if self._handshakes.must_reject(transport.host):
            self._reject_connection(transport, "too many TLS handshakes in progress from its address")
            return False
        place = self._listener.acquire_slot(transport.host)
        if isinstance(place, str):
            self._reject_connection(transport, place)
            return False
        self._places[transport] = place
        scheduler = self._listener.scheduler
        account = scheduler.open_account(client_network(transport.host), is_authenticated=False)
        self._accounts[transport] = account
        transport.loop_share = AccountBudget(scheduler, lambda: account)
        evicted = self._handshakes.add(transport)
        if evicted is not None:
            evicted.abort_handshake("slow TLS handshake aborted in favor of a new one")
        return True

    def on_handshake_done(self, transport: TlsTransport) -> asyncio.BufferedProtocol:
        principal = self._map_certificate_to_principal(transport.peer_certificate)
        self._handshakes.remove(transport)
        connection = self._connection()
        connection.client.principal = principal
        connection.slot = self._places.pop(transport)
        self._listener.scheduler.close_account(self._accounts.pop(transport))
        peer = connection.client
        transport.loop_share = AccountBudget(self._listener.scheduler, lambda: peer.account)
        return connection

    def on_handshake_failed(self, transport: TlsTransport, reason: str | None) -> None:
        self._handshakes.remove(transport)
        place = self._places.pop(transport, None)
        if place is not None:
            self._listener.release_slot(place)
        account = self._accounts.pop(transport, None)
        if account is not None:
            self._listener.scheduler.close_account(account)
        if reason is not None:
            self._log_rejection(transport, reason)

    def _reject_connection(self, transport: TlsTransport, reason: str) -> None:
        self._listener.connection_stats[self._name].rejected += 1
        self._log_rejection(transport, reason)

    def _log_rejection(self, transport: TlsTransport, reason: str) -> None:
        logger.info("connection from %s:%d rejected: %s", transport.host, transport.port, reason)

    def _map_certificate_to_principal(self, certificate: bytes | None) -> Principal:
        rules = self._secured.principal_rules
        if certificate is None or rules is None:
            return ANONYMOUS
        try:
            subject = format_certificate_subject(certificate)
            if len(subject) > TLS_SUBJECT_CHARACTERS_MAX:
                raise TlsConnectionRejected(
                    f"the subject of the client certificate has more than {TLS_SUBJECT_CHARACTERS_MAX} characters"
                )
            return Principal(USER, rules.principal_name(subject))
        except (InvalidSubject, NoMatchingRule) as error:
            raise TlsConnectionRejected(str(error)) from None
