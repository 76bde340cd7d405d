"""SASL authenticator of a node: hashes passwords and validates tokens in threads, and delays failure responses."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from chronik.clock import Clock
from chronik.ip_addresses import client_network
from chronik.request_reply import ConnectedClient
from chronik.security.sasl.fair_pool import FairThreadPool
from chronik.security.sasl.jwks import READ_SECONDS_MAX, KeysLoading, KeysUnavailable
from chronik.security.sasl.login_history import LoginHistory
from chronik.security.sasl.oauthbearer import OAuthBearerServer
from chronik.security.sasl.outcomes import (
    OAUTHBEARER,
    PLAIN,
    HashPassword,
    InvalidToken,
    SaslFailure,
    SaslOutcome,
    SaslSuccess,
    ValidateToken,
    ValidToken,
)
from chronik.security.sasl.plain import PlainServer
from chronik.security.sasl.scram import ScramServer
from chronik.security.sasl.scram_keys import MECHANISMS_BY_NAME, salt_password
from chronik.security.sasl.session import MechanismServer, SaslResponse, SaslSession
from chronik.security.sasl.tokens import TokenValidator
from chronik.security.sasl.users import ScramUsers

logger = logging.getLogger("chronik.security")

NONCE_BYTES: Final = 24


class Authenticator:
    """The component that runs the SASL exchange of all client connections."""

    def __init__(
        self,
        users: ScramUsers,
        clock: Clock,
        failure_delay_ms: Callable[[], int],
        validator: TokenValidator | None = None,
    ) -> None:
        self._users = users
        self._clock = clock
        self._failure_delay_ms = failure_delay_ms
        self._validator = validator
        self._work = FairThreadPool()
        self._history = LoginHistory(clock.monotonic)
        self._token_work = FairThreadPool()  # separate: a JWKS server that does not respond must not delay passwords

    def close(self) -> None:
        self._work.close()
        self._token_work.close()

    def new_session(
        self, mechanisms: Callable[[], Sequence[str]], lifetime_ms_max: Callable[[str], int]
    ) -> SaslSession:
        """Return the SASL session of a new connection."""
        return SaslSession(mechanisms, self._machine, lifetime_ms_max)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def _machine(self, mechanism: str) -> MechanismServer:
        if mechanism == PLAIN:
            return PlainServer(self._users.keys_of_any_mechanism)
        if mechanism == OAUTHBEARER:
            return OAuthBearerServer()
        scram = MECHANISMS_BY_NAME[mechanism]
        return ScramServer(scram, partial(self._users.keys, scram), secrets.token_urlsafe(NONCE_BYTES))

    async def respond(self, session: SaslSession, peer: ConnectedClient, data: bytes) -> SaslResponse:
        """Return the response to a client's SASL message.

        An error is returned after a fixed delay, so the time to detect it reveals nothing.

        Raises:
            Disconnect: Too many authentications are queued.
        """
        answer = self.respond_or_await(session, peer, data)
        return answer if isinstance(answer, SaslResponse) else await answer

    def respond_or_await(
        self, session: SaslSession, peer: ConnectedClient, data: bytes
    ) -> SaslResponse | Awaitable[SaslResponse]:
        """Return the response to a client's SASL message, or an awaitable if it needs a thread or a delay.

        SCRAM messages need no thread. A password-guessing client sends too many of them for one task each.
        """
        began = self._clock.monotonic()
        outcome = session.step(data)
        if isinstance(outcome, HashPassword | ValidateToken):
            return self._answer_in_thread(session, peer, outcome, began)
        answer = self._settle(session, outcome)
        return self._delay_rejection(answer, peer, began) if answer.is_rejection else answer

    async def _answer_in_thread(
        self, session: SaslSession, peer: ConnectedClient, asked: HashPassword | ValidateToken, began: float
    ) -> SaslResponse:
        outcome: SaslOutcome = asked
        while isinstance(outcome, HashPassword | ValidateToken):
            outcome = await self._run_in_thread(session.machine, outcome, peer.host)
        answer = self._settle(session, outcome)
        return await self._delay_rejection(answer, peer, began) if answer.is_rejection else answer

    def _settle(self, session: SaslSession, outcome: SaslOutcome) -> SaslResponse:
        return session.conclude(outcome, self._clock.monotonic(), self._clock.now_ms())

    async def _delay_rejection(self, answer: SaslResponse, peer: ConnectedClient, began: float) -> SaslResponse:
        """Delay a rejection, and log it if it does not close the connection."""
        if answer.error is None:
            logger.info("client %s:%d: %s", peer.host, peer.port, answer.rejection_reason)
        await self.delay_failure(began)
        return answer

    async def delay_failure(self, began: float) -> None:
        """Wait until the response to a failed authentication may be sent."""
        await asyncio.sleep(self._failure_delay_ms() / 1000 - (self._clock.monotonic() - began))

    async def _run_in_thread(
        self, machine: MechanismServer | None, asked: HashPassword | ValidateToken, host: str
    ) -> SaslOutcome:
        if isinstance(asked, HashPassword):
            assert isinstance(machine, PlainServer)
            return await self._check_password(machine, asked, client_network(host))
        assert isinstance(machine, OAuthBearerServer)
        if self._validator is None:
            return SaslFailure("no JWKS endpoint is configured for tokens")
        return machine.continue_with_token(
            await self._validate_token(host, partial(_validate, self._validator, asked.token))
        )

    async def _check_password(self, machine: PlainServer, asked: HashPassword, network: str) -> SaslOutcome:
        """Hash and verify a password with the priority of its network and user, and record the result."""
        hash_password = partial(salt_password, asked.password, asked.salt, asked.iterations, asked.digest)
        priority = self._history.priority(network, machine.user)
        outcome = machine.continue_with_hash(await self._work.run(network, hash_password, priority))
        if isinstance(outcome, SaslSuccess):
            self._history.record_success(network, machine.user)
        else:
            self._history.record_failure(network, machine.user)
        return outcome

    async def _validate_token(
        self, host: str, validate: Callable[[], ValidToken | InvalidToken]
    ) -> ValidToken | InvalidToken:
        """Validate a token, waiting for a key reload outside of the thread pool so that other clients are served."""
        try:
            return await self._token_work.run(client_network(host), validate)
        except KeysLoading as awaited:
            await _wait_for_keys(awaited.loaded)
        try:
            return await self._token_work.run(client_network(host), validate)
        except KeysLoading as awaited:
            return InvalidToken(str(awaited))


async def _wait_for_keys(reading: Future[None]) -> None:
    """Wait until the keys are loaded or the timeout expires."""
    waiting = asyncio.wrap_future(reading)
    try:
        await asyncio.wait([waiting], timeout=READ_SECONDS_MAX)
    finally:
        waiting.cancel()


def _validate(validator: TokenValidator, token: str) -> ValidToken | InvalidToken:
    """Validate a token; raise KeysAwaited if its key has to be loaded first."""
    try:
        return validator(token)
    except InvalidToken as refused:
        return refused
    except KeysUnavailable as error:
        return InvalidToken(str(error))
