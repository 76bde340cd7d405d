"""SASL authenticator of a node: hashes passwords and validates tokens in threads, and delays failure responses."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final, TypeVar

from chronik.clock import Clock
from chronik.ip_addresses import client_network
from chronik.metadata.image import Image
from chronik.metadata.records import ScramCredential
from chronik.metadata.tables import CredentialShape
from chronik.request_reply import ConnectedClient
from chronik.security.sasl.fair_pool import FairThreadPool, Priority
from chronik.security.sasl.jwks import READ_SECONDS_MAX, KeysLoading, KeysUnavailable
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
from chronik.security.sasl.scram_keys import (
    ITERATIONS_MIN,
    MECHANISMS_BY_NAME,
    MECHANISMS_BY_NUMBER,
    SALT_BYTES,
    ScramKeySet,
    ScramMechanism,
    derive_fake_salt,
    derive_pseudorandom_position,
    salt_password,
)
from chronik.security.sasl.session import MechanismServer, SaslResponse, SaslSession
from chronik.security.sasl.tokens import TokenValidator

logger = logging.getLogger("chronik.security")

K = TypeVar("K")

FAILURE_TTL_SECONDS: Final = 300.0
"""Time in seconds for which a failed login lowers the priority of password checks from the same network."""
SUCCESS_TTL_SECONDS: Final = 86_400.0
"""Time in seconds for which a successful login raises the priority of the user's password checks from the same
network."""
ENTRIES_MAX: Final = 10_000
"""Maximum number of recorded successes, and of networks with failures; the oldest entry is evicted. The limits are
separate, so that password guesses from many networks cannot evict successes."""

_DEFAULT_SHAPE: Final = CredentialShape(ITERATIONS_MIN, SALT_BYTES, True)
"""The iteration count and salt format of SCRAM credentials that Kafka's and Chronik's tools create by default."""

NONCE_BYTES: Final = 24


class LoginHistory:
    """The recent login results of users and networks, by which password checks are prioritised.

    Checking a password takes milliseconds of CPU time, whether it is right or wrong. While many networks guess
    passwords, users who recently logged in from the same network are checked first, then networks without recent
    failures.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._verified: dict[tuple[str, str], float] = {}
        """Time of the last successful login by network and user, oldest first."""
        self._failed: dict[str, float] = {}
        """Time of the last failed login by network, oldest first."""

    def priority(self, network: str, user: str) -> Priority:
        """Return the priority of a password check for this user and client network."""
        now = self._now()
        if now - self._verified.get((network, user), -math.inf) < SUCCESS_TTL_SECONDS:
            return Priority.HIGH
        if now - self._failed.get(network, -math.inf) < FAILURE_TTL_SECONDS:
            return Priority.LOW
        return Priority.NORMAL

    def record_success(self, network: str, user: str) -> None:
        """Record a successful login, which raises the priority of the user on the network."""
        _set_newest_time(self._verified, (network, user), self._now())

    def record_failure(self, network: str, user: str) -> None:
        """Record a failed login, which lowers the priority of the network except for other verified users."""
        self._verified.pop((network, user), None)
        _set_newest_time(self._failed, network, self._now())


def _set_newest_time(times: dict[K, float], key: K, now: float) -> None:
    """Set the key's time and move it to the end, evicting the oldest key if the dict is full."""
    times.pop(key, None)
    if len(times) >= ENTRIES_MAX:
        del times[next(iter(times))]
    times[key] = now


class ScramUsers:
    """A lookup of users' SCRAM keys in the metadata image, with plausible fake keys for nonexistent users."""

    def __init__(self, image: Callable[[], Image]) -> None:
        self._image = image

    def keys(self, scram: ScramMechanism, user: str) -> tuple[ScramKeySet, bool]:
        """Return the user's SCRAM keys, fake ones for a nonexistent user, and whether the user exists.

        The iteration count and salt format of an unknown user follow the distribution among existing users, keyed by
        name, so that the iteration count does not reveal whether a user exists. All nodes return the same keys, which
        change only with the distribution.
        """
        image = self._image()
        credential = image.users.credentials(user).get(scram.number)
        if credential is not None:
            return _build_keys_from_credential(credential), True
        # Without a salt secret no user was ever created, and there is nothing to hide.
        secret = image.salt_secret or image.cluster_id.encode()
        shape = (
            image.users.get_credential_shape_at(scram.number, derive_pseudorandom_position(secret, scram.name, user))
            or _DEFAULT_SHAPE
        )
        salt = derive_fake_salt(
            secret, scram.name, user, shape.salt_bytes, is_lower_alphanumeric=shape.is_lower_alphanumeric
        )
        fake_key = scram.hmac(secret, salt)
        return ScramKeySet(salt, shape.iterations, fake_key, fake_key), False

    def get_keys_of_any_mechanism(self, user: str) -> tuple[ScramMechanism, ScramKeySet, bool]:
        """Return the user's keys for one of the SCRAM mechanisms. A PLAIN password can be verified with any of them."""
        users = self._image().users
        number = max(users.credentials(user), default=users.find_most_common_mechanism() or min(MECHANISMS_BY_NUMBER))
        scram = MECHANISMS_BY_NUMBER[number]
        return (scram, *self.keys(scram, user))


def _build_keys_from_credential(credential: ScramCredential) -> ScramKeySet:
    return ScramKeySet(credential.salt, credential.iterations, credential.stored_key, credential.server_key)


class Authenticator:
    """The SASL authenticator of a node, which handles the SASL messages of all client connections."""

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

    def create_session(
        self, mechanisms: Callable[[], Sequence[str]], lifetime_ms_max: Callable[[str], int]
    ) -> SaslSession:
        """Return the SASL session of a new connection."""
        return SaslSession(mechanisms, self._create_mechanism_server, lifetime_ms_max)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def _create_mechanism_server(self, mechanism: str) -> MechanismServer:
        if mechanism == PLAIN:
            return PlainServer(self._users.get_keys_of_any_mechanism)
        if mechanism == OAUTHBEARER:
            return OAuthBearerServer()
        scram = MECHANISMS_BY_NAME[mechanism]
        return ScramServer(scram, partial(self._users.keys, scram), secrets.token_urlsafe(NONCE_BYTES))

    async def respond(self, session: SaslSession, peer: ConnectedClient, data: bytes) -> SaslResponse:
        """Return the response to a client's SASL message.

        An error is returned after a fixed delay, so that the response time reveals nothing about its cause.

        Raises:
            Disconnect: Too many authentications are queued.
        """
        answer = self.respond_or_await(session, peer, data)
        return answer if isinstance(answer, SaslResponse) else await answer

    def respond_or_await(
        self, session: SaslSession, peer: ConnectedClient, data: bytes
    ) -> SaslResponse | Awaitable[SaslResponse]:
        """Return the response to a SASL message, or an awaitable if computing it needs a thread or a delay.

        SCRAM messages need no thread, and no task either: a client that guesses passwords sends many of them.
        """
        began = self._clock.monotonic()
        outcome = session.step(data)
        if isinstance(outcome, HashPassword | ValidateToken):
            return self._respond_in_thread(session, peer, outcome, began)
        answer = self._process_outcome(session, outcome)
        return self._delay_rejection(answer, peer, began) if answer.is_rejection else answer

    async def _respond_in_thread(
        self, session: SaslSession, peer: ConnectedClient, asked: HashPassword | ValidateToken, began: float
    ) -> SaslResponse:
        outcome: SaslOutcome = asked
        while isinstance(outcome, HashPassword | ValidateToken):
            outcome = await self._run_in_thread(session.machine, outcome, peer.host)
        answer = self._process_outcome(session, outcome)
        return await self._delay_rejection(answer, peer, began) if answer.is_rejection else answer

    def _process_outcome(self, session: SaslSession, outcome: SaslOutcome) -> SaslResponse:
        return session.process_outcome(outcome, self._clock.monotonic(), self._clock.now_ms())

    async def _delay_rejection(self, answer: SaslResponse, peer: ConnectedClient, began: float) -> SaslResponse:
        """Delay a rejection, and log it if it does not close the connection."""
        if answer.error is None:
            logger.info("SASL login rejected: client %s:%d: %s", peer.host, peer.port, answer.rejection_reason)
        await self.wait_for_failure_delay(began)
        return answer

    async def wait_for_failure_delay(self, began: float) -> None:
        """Wait until the fixed response time of failed authentications has elapsed since `began`."""
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
            await self._validate_token(host, partial(_validate_token, self._validator, asked.token))
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
            await _wait_until_keys_loaded(awaited.loaded)
        try:
            return await self._token_work.run(client_network(host), validate)
        except KeysLoading as awaited:
            return InvalidToken(str(awaited))


async def _wait_until_keys_loaded(reading: Future[None]) -> None:
    """Wait until the keys are loaded or the timeout expires."""
    waiting = asyncio.wrap_future(reading)
    try:
        await asyncio.wait([waiting], timeout=READ_SECONDS_MAX)
    finally:
        waiting.cancel()


def _validate_token(validator: TokenValidator, token: str) -> ValidToken | InvalidToken:
    """Validate a token; raise KeysLoading if the keys must be loaded first."""
    try:
        return validator(token)
    except InvalidToken as refused:
        return refused
    except KeysUnavailable as error:
        return InvalidToken(str(error))
