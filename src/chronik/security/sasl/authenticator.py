"""SASL authenticator of a node: hashes passwords and validates tokens in threads, and delays failure responses."""

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
    """The component that runs the SASL exchange of all client connections."""

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
        self._token_work = Work()  # separate: a JWKS server that does not respond must not delay passwords

    def close(self) -> None:
        self._work.close()
        self._token_work.close()

    def session(self, mechanisms: Callable[[], Sequence[str]], lifetime_ms_max: Callable[[str], int]) -> Session:
        """Return the SASL session of a new connection."""
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
        """Return the response to a client's SASL message.

        An error is returned after a fixed delay, so the time to detect it reveals nothing.

        Raises:
            Disconnect: Too many authentications are queued.
        """
        answer = self.answer_at_once_or_later(session, peer, data)
        return answer if isinstance(answer, Answer) else await answer

    def answer_at_once_or_later(self, session: Session, peer: Peer, data: bytes) -> Answer | Awaitable[Answer]:
        """Return the response to a client's SASL message, or an awaitable if it needs a thread or a delay.

        SCRAM messages need no thread. A password-guessing client sends too many of them for one task each.
        """
        began = self._clock.monotonic()
        outcome = session.step(data)
        if isinstance(outcome, Derive | Validate):
            return self._answer_in_thread(session, peer, outcome, began)
        answer = self._settle(session, outcome)
        return self._delay_rejection(answer, peer, began) if answer.is_refusal else answer

    async def _answer_in_thread(self, session: Session, peer: Peer, asked: Derive | Validate, began: float) -> Answer:
        outcome: Outcome = asked
        while isinstance(outcome, Derive | Validate):
            outcome = await self._run_in_thread(session.machine, outcome, peer.host)
        answer = self._settle(session, outcome)
        return await self._delay_rejection(answer, peer, began) if answer.is_refusal else answer

    def _settle(self, session: Session, outcome: Outcome) -> Answer:
        return session.settle(outcome, self._clock.monotonic(), self._clock.now_ms())

    async def _delay_rejection(self, answer: Answer, peer: Peer, began: float) -> Answer:
        """Delay a rejection, and log it if it does not close the connection."""
        if answer.error is None:
            logger.info("client %s:%d: %s", peer.host, peer.port, answer.why)
        await self.delay(began)
        return answer

    async def delay(self, began: float) -> None:
        """Wait until the response to a failed authentication may be sent."""
        await asyncio.sleep(self._failure_delay_ms() / 1000 - (self._clock.monotonic() - began))

    async def _run_in_thread(self, machine: ServerMachine | None, asked: Derive | Validate, host: str) -> Outcome:
        if isinstance(asked, Derive):
            assert isinstance(machine, PlainServer)
            return await self._check_password(machine, asked, network_of(host))
        assert isinstance(machine, OAuthBearerServer)
        if self._validator is None:
            return Failure("no JWKS endpoint is configured for tokens")
        return machine.validated(await self._validate_token(host, partial(_validate, self._validator, asked.token)))

    async def _check_password(self, machine: PlainServer, asked: Derive, network: str) -> Outcome:
        """Hash and verify a password with the priority of its network and user, and record the result."""
        hash_password = partial(salted, asked.password, asked.salt, asked.iterations, asked.digest)
        priority = self._history.priority(network, machine.user)
        outcome = machine.derived(await self._work.do(network, hash_password, priority))
        if isinstance(outcome, Success):
            self._history.record_success(network, machine.user)
        else:
            self._history.record_failure(network, machine.user)
        return outcome

    async def _validate_token(
        self, host: str, validate: Callable[[], ValidToken | TokenRefused]
    ) -> ValidToken | TokenRefused:
        """Validate a token, waiting for a key reload outside of the thread pool so that other clients are served."""
        try:
            return await self._token_work.do(network_of(host), validate)
        except KeysAwaited as awaited:
            await _wait_for_keys(awaited.reading)
        try:
            return await self._token_work.do(network_of(host), validate)
        except KeysAwaited as awaited:
            return TokenRefused(str(awaited))


async def _wait_for_keys(reading: Future[None]) -> None:
    """Wait until the keys are loaded or the timeout expires."""
    waiting = asyncio.wrap_future(reading)
    try:
        await asyncio.wait([waiting], timeout=READ_SECONDS_MAX)
    finally:
        waiting.cancel()


def _validate(validator: TokenValidator, token: str) -> ValidToken | TokenRefused:
    """Validate a token; raise KeysAwaited if its key has to be loaded first."""
    try:
        return validator(token)
    except TokenRefused as refused:
        return refused
    except KeysUnavailable as error:
        return TokenRefused(str(error))
