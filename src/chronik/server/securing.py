"""TLS listeners: handshakes are limited from accept on, and a client certificate determines the principal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from chronik.addresses import network_of
from chronik.limits import TLS_SUBJECT_CHARACTERS_MAX
from chronik.principals import ANONYMOUS, USER, Principal
from chronik.scheduler import Account, AccountShare
from chronik.security.principal_rules import NoRuleApplies, PrincipalRules
from chronik.security.subjects import BadSubject, subject_of
from chronik.server.connection import Connection
from chronik.server.handshakes import Handshakes
from chronik.server.listener import Listener
from chronik.server.listener_limits import ListenerLimits
from chronik.server.places import Place
from chronik.tls.contexts import TlsContext, keep_up_to_date
from chronik.tls.transport import TlsRefused, TlsTransport

logger = logging.getLogger("chronik.server")


class SecuredListener(msgspec.Struct, frozen=True):
    """The TLS configuration of one listener."""

    context: TlsContext
    rules: PrincipalRules | None = None
    """Rules that map a certificate's subject to a principal; None if clients authenticate with SASL instead."""


class ListenerSecuring:
    """The TLS listeners of a node by name."""

    def __init__(self, listeners: Mapping[str, SecuredListener], listener_limits: ListenerLimits) -> None:
        self._listeners = listeners
        self._handshakes: Handshakes[TlsTransport] = Handshakes(
            listener_limits.handshakes, listener_limits.handshakes_per_address
        )

    @property
    def handshake_count(self) -> int:
        """Return the number of TLS handshakes in progress."""
        return len(self._handshakes)

    def on_accept(
        self, name: str, listener: Listener, connection: Callable[[], Connection]
    ) -> Callable[[], asyncio.BaseProtocol] | None:
        """Return the protocol factory of the listener with that name; None if it does not use TLS."""
        secured = self._listeners.get(name)
        return None if secured is None else _Acceptor(name, secured, listener, self._handshakes, connection).accept

    def jobs(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Return the background job that reloads changed certificates."""
        contexts = [listener.context for listener in self._listeners.values()]
        return (lambda: keep_up_to_date(contexts),)

    def stop(self) -> None:
        """Abort the handshakes in progress."""
        for handshake in self._handshakes.all():
            handshake.give_up("the node is stopping")


class _Acceptor:
    """The owner of one listener's TLS transports until their handshake is done."""

    def __init__(
        self,
        name: str,
        secured: SecuredListener,
        listener: Listener,
        handshakes: Handshakes[TlsTransport],
        connection: Callable[[], Connection],
    ) -> None:
        """`handshakes` are those of all listeners of the node."""
        self.handshake_seconds: Final = listener.limits.handshake_seconds
        self._name = name
        self._secured = secured
        self._listener = listener
        self._handshakes = handshakes
        self._connection = connection
        self._places: dict[TlsTransport, Place] = {}
        """Slots of clients in a handshake; afterwards the connection holds the slot."""
        self._accounts: dict[TlsTransport, Account] = {}

    def accept(self) -> TlsTransport:
        return TlsTransport(self, self._secured.context.context)

    def handshake_began(self, transport: TlsTransport) -> bool:
        """Check the limits before the handshake, which costs a thousand times more than a rejection."""
        if self._handshakes.refuses(transport.host):
            self._reject(transport, "too many TLS handshakes in progress from its address")
            return False
        place = self._listener.take_place(transport.host)
        if isinstance(place, str):
            self._reject(transport, place)
            return False
        self._places[transport] = place
        scheduler = self._listener.scheduler
        account = scheduler.open_account(network_of(transport.host), is_authenticated=False)
        self._accounts[transport] = account
        transport.share = AccountShare(scheduler, lambda: account)
        evicted = self._handshakes.begin(transport)
        if evicted is not None:
            evicted.give_up("slow TLS handshake aborted in favor of a new one")
        return True

    def handshake_done(self, transport: TlsTransport) -> asyncio.BufferedProtocol:
        principal = self._principal(transport.peer_certificate)
        self._handshakes.end(transport)
        connection = self._connection()
        connection.peer.principal = principal
        connection.place = self._places.pop(transport)
        self._listener.scheduler.close_account(self._accounts.pop(transport))
        peer = connection.peer
        transport.share = AccountShare(self._listener.scheduler, lambda: peer.account)
        return connection

    def handshake_failed(self, transport: TlsTransport, reason: str | None) -> None:
        self._handshakes.end(transport)
        place = self._places.pop(transport, None)
        if place is not None:
            self._listener.give_back(place)
        account = self._accounts.pop(transport, None)
        if account is not None:
            self._listener.scheduler.close_account(account)
        if reason is not None:
            self._log_rejection(transport, reason)

    def _reject(self, transport: TlsTransport, reason: str) -> None:
        self._listener.comings[self._name].refused += 1
        self._log_rejection(transport, reason)

    def _log_rejection(self, transport: TlsTransport, reason: str) -> None:
        logger.info("connection from %s:%d rejected: %s", transport.host, transport.port, reason)

    def _principal(self, certificate: bytes | None) -> Principal:
        rules = self._secured.rules
        if certificate is None or rules is None:
            return ANONYMOUS
        try:
            subject = subject_of(certificate)
            if len(subject) > TLS_SUBJECT_CHARACTERS_MAX:
                raise TlsRefused(
                    f"the subject of the client certificate has more than {TLS_SUBJECT_CHARACTERS_MAX} characters"
                )
            return Principal(USER, rules.name_of(subject))
        except (BadSubject, NoRuleApplies) as error:
            raise TlsRefused(str(error)) from None
