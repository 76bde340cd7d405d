"""Who asks over HTTP: by a session's cookie, by name and password with each request, or whoever it is where nobody has
to say so."""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode
from http import HTTPStatus
from typing import Final

from chronik.console.connection import Caller
from chronik.console.door import Door
from chronik.console.http import BadRequest, HttpRequest
from chronik.console.rest.node_side import NodeSide
from chronik.console.rest.refusals import Refusal
from chronik.console.rest.sessions import Sessions, token_in
from chronik.exchange import Disconnect, Peer
from chronik.principals import ANONYMOUS, USER, Principal
from chronik.security import audit
from chronik.security.sasl.authenticator import Authenticator
from chronik.security.sasl.outcomes import PLAIN
from chronik.security.sasl.users import KnownUsers

BASIC: Final = "basic "
CHALLENGE: Final = ("WWW-Authenticate", "Chronik-Session")
"""Not Basic, which would make browsers ask for a password in a window of their own."""

FAILURES_REMEMBERED_SECONDS: Final = 300.0
ADDRESSES_MAX: Final = 1000
DELAY_SECONDS_MAX: Final = 5.0
"""Who has failed often waits so long before the next try is looked at."""


class Identity:
    def __init__(self, side: NodeSide, door: Door) -> None:
        self._side = side
        self._door = door
        clock, configs = side.services.clock, side.services.configs
        self._now = clock.monotonic
        self._authenticator = Authenticator(
            KnownUsers(lambda: side.services.image),
            clock,
            lambda: configs.broker_int("connection.failed.authentication.delay.ms"),
        )
        self._known: dict[tuple[str, str], tuple[Principal, object]] = {}
        self._failures: dict[str, tuple[int, float]] = {}
        """By address: how many, and when the last was."""
        self.sessions: Final = Sessions(self._now, self._proof)

    def close(self) -> None:
        self._authenticator.close()

    @property
    def login_with(self) -> str | None:
        if self._side.asks_who:
            return "password"
        return None if self._door.is_open else "token"

    def _proof(self, principal: Principal) -> object:
        """What is kept of the passwords of a user: none, once they have none."""
        return None if principal == ANONYMOUS else dict(self._side.services.image.users.of(principal.name))

    async def who(self, request: HttpRequest, caller: Caller) -> Principal | None:
        """Returns None for somebody who has not said so, and would have to. Raises Refusal for a wrong password."""
        known = self.sessions.find(token_in(request.header(b"cookie")))
        if known is not None:
            return known
        if self._side.asks_who:
            if request.authorization.lower().startswith(BASIC):
                return await self._by_password(*_name_and_password(request.authorization[len(BASIC) :]), caller)
            return None
        try:
            self._door.check("", request.authorization, has_certificate=caller.has_certificate)
        except BadRequest:
            return None
        return ANONYMOUS

    async def log_in(self, name: str, password: str, caller: Caller) -> Principal:
        """Raises Refusal."""
        if self._side.asks_who:
            return await self._by_password(name, password, caller)
        if self._door.is_open or caller.has_certificate:
            return ANONYMOUS
        await self._wait_after_failures(caller.host)
        try:
            self._door.check("", f"Bearer {password}")
        except BadRequest:
            self._failed(caller, name)
            raise Refusal(HTTPStatus.UNAUTHORIZED, "the token is wrong") from None
        return ANONYMOUS

    async def _by_password(self, name: str, password: str, caller: Caller) -> Principal:
        """Raises Refusal: the same for a user that does not exist, and after the same time."""
        await self._wait_after_failures(caller.host)
        session = self._authenticator.session(lambda: (PLAIN,), lambda mechanism: 0)
        session.handshake(PLAIN, 1, self._now())
        message = b"\0".join((b"", name.encode("utf-8", "replace"), password.encode("utf-8", "replace")))
        try:
            answer = await self._authenticator.answer(session, Peer(caller.host, 0, 0), message)
        except Disconnect:
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, "too many others log in at the moment") from None
        if answer.error is not None or session.principal is None:
            self._failed(caller, name)
            raise Refusal(HTTPStatus.UNAUTHORIZED, "the name or the password is wrong")
        self._failures.pop(caller.host, None)
        return session.principal

    async def _wait_after_failures(self, host: str) -> None:
        count, last = self._failures.get(host, (0, 0.0))
        if count and self._now() - last < FAILURES_REMEMBERED_SECONDS:
            await asyncio.sleep(min(DELAY_SECONDS_MAX, 0.05 * 2 ** min(count - 1, 10)))

    def _failed(self, caller: Caller, name: str) -> None:
        count, last = self._failures.pop(caller.host, (0, 0.0))
        if self._now() - last > FAILURES_REMEMBERED_SECONDS:
            count = 0
        if len(self._failures) >= ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]
        self._failures[caller.host] = count + 1, self._now()
        audit.login_refused(Peer(caller.host, 0, 0, principal=Principal(USER, name)), "HTTP")


def _name_and_password(encoded: str) -> tuple[str, str]:
    """Raises Refusal."""
    try:
        name, colon, password = b64decode(encoded.strip(), validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        colon = ""
    if not colon:
        raise Refusal(HTTPStatus.UNAUTHORIZED, "expected Authorization: Basic, and NAME:PASSWORD in base64")
    return name, password
