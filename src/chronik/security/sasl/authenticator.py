"""Does what the machines of the mechanisms ask for: salts passwords and validates tokens in threads, and lets those
wait who were refused."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from chronik.addresses import network_of
from chronik.clock import Clock
from chronik.exchange import Peer
from chronik.security.sasl.jwks import READ_SECONDS_MAX, KeysAwaited, KeysUnavailable
from chronik.security.sasl.login_history import LoginHistory
from chronik.security.sasl.oauthbearer import OAuthBearerServer
from chronik.security.sasl.outcomes import (
    OAUTHBEARER,
    PLAIN,
    Derive,
    Failure,
    Outcome,
    Success,
    TokenRefused,
    Validate,
    ValidToken,
)
from chronik.security.sasl.plain import PlainServer
from chronik.security.sasl.scram import ScramServer
from chronik.security.sasl.scram_keys import BY_NAME, salted
from chronik.security.sasl.session import Answer, ServerMachine, Session
from chronik.security.sasl.tokens import TokenValidator
from chronik.security.sasl.users import KnownUsers
from chronik.security.sasl.work import Work

logger = logging.getLogger("chronik.security")

NONCE_BYTES: Final = 24


class Authenticator:
    def __init__(
        self,
        users: KnownUsers,
        clock: Clock,
        failure_delay_ms: Callable[[], int],
        validator: TokenValidator | None = None,
    ) -> None:
        self._users = users
        self._clock = clock
        self._failure_delay_ms = failure_delay_ms
        self._validator = validator
        self._work = Work()
        self._history = LoginHistory(clock.monotonic)
        self._token_work = Work()  # its own: an address that does not answer must not keep passwords waiting

    def close(self) -> None:
        self._work.close()
        self._token_work.close()

    def session(self, mechanisms: Callable[[], Sequence[str]], lifetime_ms_max: Callable[[str], int]) -> Session:
        """Makes that of a new connection."""
        return Session(mechanisms, self._machine, lifetime_ms_max)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def _machine(self, mechanism: str) -> ServerMachine:
        if mechanism == PLAIN:
            return PlainServer(self._users.any_keys)
        if mechanism == OAUTHBEARER:
            return OAuthBearerServer()
        scram = BY_NAME[mechanism]
        return ScramServer(scram, partial(self._users.keys, scram), secrets.token_urlsafe(NONCE_BYTES))

    async def answer(self, session: Session, peer: Peer, data: bytes) -> Answer:
        """Returns what to say to the client's message; if it is an error, after a while: the same for all errors,
        however long it took to find them. Raises Disconnect."""
        answer = self.answer_at_once_or_later(session, peer, data)
        return answer if isinstance(answer, Answer) else await answer

    def answer_at_once_or_later(self, session: Session, peer: Peer, data: bytes) -> Answer | Awaitable[Answer]:
        """As `answer`, and at once where nobody has to wait: the messages of SCRAM take no thread, and are too many,
        when somebody tries passwords, for a task each."""
        began = self._clock.monotonic()
        outcome = session.step(data)
        if isinstance(outcome, Derive | Validate):
            return self._answer_worked_out(session, peer, outcome, began)
        answer = self._settled(session, outcome)
        return self._refused(answer, peer, began) if answer.is_refusal else answer

    async def _answer_worked_out(self, session: Session, peer: Peer, asked: Derive | Validate, began: float) -> Answer:
        outcome: Outcome = asked
        while isinstance(outcome, Derive | Validate):
            outcome = await self._worked_out(session.machine, outcome, peer.host)
        answer = self._settled(session, outcome)
        return await self._refused(answer, peer, began) if answer.is_refusal else answer

    def _settled(self, session: Session, outcome: Outcome) -> Answer:
        return session.settle(outcome, self._clock.monotonic(), self._clock.now_ms())

    async def _refused(self, answer: Answer, peer: Peer, began: float) -> Answer:
        """Delay a rejection, and log it if the connection does not end with it."""
        if answer.error is None:
            logger.info("%s:%d: %s", peer.host, peer.port, answer.why)
        await self.delay(began)
        return answer

    async def delay(self, began: float) -> None:
        """Returns when a client that was refused may be told so."""
        await asyncio.sleep(self._failure_delay_ms() / 1000 - (self._clock.monotonic() - began))

    async def _worked_out(self, machine: ServerMachine | None, asked: Derive | Validate, host: str) -> Outcome:
        if isinstance(asked, Derive):
            assert isinstance(machine, PlainServer)
            return await self._check_password(machine, asked, network_of(host))
        assert isinstance(machine, OAuthBearerServer)
        if self._validator is None:
            return Failure("no keys of tokens are set up")
        return machine.validated(await self._token(host, partial(_validated, self._validator, asked.token)))

    async def _check_password(self, machine: PlainServer, asked: Derive, network: str) -> Outcome:
        salt = partial(salted, asked.password, asked.salt, asked.iterations, asked.digest)
        priority = self._history.priority(network, machine.user)
        outcome = machine.derived(await self._work.do(network, salt, priority))
        if isinstance(outcome, Success):
            self._history.succeeded(network, machine.user)
        else:
            self._history.failed(network, machine.user)
        return outcome

    async def _token(self, host: str, validate: Callable[[], ValidToken | TokenRefused]) -> ValidToken | TokenRefused:
        """Waits for keys here, if it has to, and not in one of the few threads: others come through meanwhile."""
        try:
            return await self._token_work.do(network_of(host), validate)
        except KeysAwaited as awaited:
            await _done(awaited.reading)
        try:
            return await self._token_work.do(network_of(host), validate)
        except KeysAwaited as awaited:
            return TokenRefused(str(awaited))


async def _done(reading: Future[None]) -> None:
    """Returns when they are read, or should be by now."""
    waiting = asyncio.wrap_future(reading)
    try:
        await asyncio.wait([waiting], timeout=READ_SECONDS_MAX)
    finally:
        waiting.cancel()


def _validated(validator: TokenValidator, token: str) -> ValidToken | TokenRefused:
    """Raises KeysAwaited."""
    try:
        return validator(token)
    except TokenRefused as refused:
        return refused
    except KeysUnavailable as error:
        return TokenRefused(str(error))
