"""A listener's connections with TLS: their handshakes are counted from the moment they are accepted, and whoever shows
a certificate gets the principal that its subject stands for."""

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
    context: TlsContext
    rules: PrincipalRules | None = None
    """Who a certificate's subject is; None where clients say by other means who they are (SASL)."""


class ListenerSecuring:
    """All listeners of a node that have TLS, by their names."""

    def __init__(self, listeners: Mapping[str, SecuredListener], listener_limits: ListenerLimits) -> None:
        self._listeners = listeners
        self._handshakes: Handshakes[TlsTransport] = Handshakes(
            listener_limits.handshakes, listener_limits.handshakes_per_address
        )

    @property
    def handshake_count(self) -> int:
        return len(self._handshakes)

    def on_accept(
        self, name: str, listener: Listener, connection: Callable[[], Connection]
    ) -> Callable[[], asyncio.BaseProtocol] | None:
        secured = self._listeners.get(name)
        return None if secured is None else _Acceptor(name, secured, listener, self._handshakes, connection).accept

    def jobs(self) -> Sequence[Callable[[], Awaitable[None]]]:
        contexts = [listener.context for listener in self._listeners.values()]
        return (lambda: keep_up_to_date(contexts),)

    def stop(self) -> None:
        for handshake in self._handshakes.all():
            handshake.give_up("the node stops")


class _Acceptor:
    """The owner of one listener's handshakes."""

    def __init__(
        self,
        name: str,
        secured: SecuredListener,
        listener: Listener,
        handshakes: Handshakes[TlsTransport],
        connection: Callable[[], Connection],
    ) -> None:
        """`handshakes` are those of all listeners."""
        self.handshake_seconds: Final = listener.limits.handshake_seconds
        self._name = name
        self._secured = secured
        self._listener = listener
        self._handshakes = handshakes
        self._connection = connection
        self._places: dict[TlsTransport, Place] = {}
        """Of those that are shaking hands: from then on the connection has it."""
        self._accounts: dict[TlsTransport, Account] = {}

    def accept(self) -> TlsTransport:
        return TlsTransport(self, self._secured.context.context)

    def handshake_began(self, transport: TlsTransport) -> bool:
        """A handshake costs a thousand times what a refusal does: whatever can be refused is refused before it."""
        if self._handshakes.refuses(transport.host):
            self._refuse(transport, "too many TLS handshakes from its address are under way")
            return False
        place = self._listener.take_place(transport.host)
        if isinstance(place, str):
            self._refuse(transport, place)
            return False
        self._places[transport] = place
        scheduler = self._listener.scheduler
        account = scheduler.open_account(network_of(transport.host), is_authenticated=False)
        self._accounts[transport] = account
        transport.share = AccountShare(scheduler, lambda: account)
        leaves = self._handshakes.begin(transport)
        if leaves is not None:
            leaves.give_up("its TLS handshake was slow, and others wait")
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
            self._tell(transport, reason)

    def _refuse(self, transport: TlsTransport, reason: str) -> None:
        self._listener.comings[self._name].refused += 1
        self._tell(transport, reason)

    def _tell(self, transport: TlsTransport, reason: str) -> None:
        logger.info("connection from %s:%d refused: %s", transport.host, transport.port, reason)

    def _principal(self, certificate: bytes | None) -> Principal:
        rules = self._secured.rules
        if certificate is None or rules is None:
            return ANONYMOUS
        try:
            subject = subject_of(certificate)
            if len(subject) > TLS_SUBJECT_CHARACTERS_MAX:
                raise TlsRefused(
                    f"the subject of its certificate has more than {TLS_SUBJECT_CHARACTERS_MAX} characters"
                )
            return Principal(USER, rules.name_of(subject))
        except (BadSubject, NoRuleApplies) as error:
            raise TlsRefused(str(error)) from None
