"""Throttling of login attempts over HTTP, per client network and user.

Failures are counted twice: per network and user, and per network. Both counts expire with time only, except that a
successful login resets the count of its own user and network. An attacker with an account therefore cannot use it to
reset the delay of guesses for other accounts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Final, TypeVar

import msgspec

from chronik.ip_addresses import client_network

K = TypeVar("K")
V = TypeVar("V")

FAILURE_RETENTION_SECONDS: Final = 300.0
"""Seconds after the last failed login until the count of failed logins expires."""
COUNTS_MAX: Final = 10_000
"""Maximum number of stored failure counts. It applies separately to counts per network and to counts per network and
user; if it is exceeded, the least recently updated count is deleted."""
DELAY_SECONDS_FIRST: Final = 0.05
DELAY_SECONDS_MAX: Final = 5.0
"""Maximum delay of a login attempt in seconds. The delay doubles with each failure up to this value, which is short
because the delay also applies to the legitimate user."""
NAME_CHARACTERS_MAX: Final = 64
"""Maximum length of a user name that is stored as text. Longer names, which clients can make up, are stored as a
hash."""
WAITING_MAX: Final = 16
"""Maximum number of queued login attempts for one user from one network."""


class TooManyLoginAttempts(Exception):
    """Too many login attempts for one user from one network are queued."""


class _FailureCount(msgspec.Struct, eq=False):
    count: int = 0
    last: float = float("-inf")


class _UserNetworkState(_FailureCount, eq=False):
    is_verified: bool = False
    """Whether the last login attempt succeeded."""
    waiting: int = 0
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class LoginThrottle:
    """A throttle that delays login attempts after failed ones, per user and per network."""

    def __init__(self, now: Callable[[], float], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._now = now
        self._sleep = sleep
        self._networks: dict[str, _FailureCount] = {}
        self._pairs: dict[tuple[str, str], _UserNetworkState] = {}

    async def run(self, host: str, user: str, verify: Callable[[], Awaitable[bool]]) -> bool:
        """Verify a login after a delay, and count the result. Logins of one user from one network run one at a time.

        Raises:
            TooManyLoginAttempts: More than WAITING_MAX attempts of the pair are queued.
        """
        network = client_network(host)
        pair = self._get_pair(network, user)
        if pair.is_verified and not pair.count:
            return self._record_login_result(network, user, pair, await verify())
        if pair.waiting >= WAITING_MAX:
            raise TooManyLoginAttempts
        pair.waiting += 1
        try:
            async with pair.lock:
                await self._sleep_for_login_delay(network, pair)
                return self._record_login_result(network, user, pair, await verify())
        finally:
            pair.waiting -= 1

    async def record_failure(self, host: str, user: str) -> None:
        """Count a failed login that did not go through `run`, and wait for the resulting delay."""
        network = client_network(host)
        self._record_login_result(network, user, self._get_pair(network, user), False)
        await self._sleep(self._compute_login_delay_seconds(self._networks.get(network)))

    async def _sleep_for_login_delay(self, network: str, pair: _UserNetworkState) -> None:
        delay = self._compute_login_delay_seconds(pair)
        if not pair.is_verified:
            delay = max(delay, self._compute_login_delay_seconds(self._networks.get(network)))
        if delay:
            await self._sleep(delay)

    def _compute_login_delay_seconds(self, failures: _FailureCount | None) -> float:
        if failures is None or not failures.count or self._now() - failures.last > FAILURE_RETENTION_SECONDS:
            return 0.0
        return min(DELAY_SECONDS_MAX, DELAY_SECONDS_FIRST * 2.0 ** min(failures.count - 1, 10))

    def _get_pair(self, network: str, user: str) -> _UserNetworkState:
        key = network, _hash_long_name(user)
        pair = self._pairs.get(key)
        if pair is None:  # Stored before the first attempt, so that concurrent attempts share its lock.
            pair = _UserNetworkState()
            _put(self._pairs, key, pair)
        return pair

    def _record_login_result(self, network: str, user: str, pair: _UserNetworkState, succeeded: bool) -> bool:
        now = self._now()
        if succeeded:
            pair.count, pair.is_verified = 0, True
        else:
            failures = self._networks.get(network) or _FailureCount()
            for each in (pair, failures):
                each.count = each.count + 1 if now - each.last <= FAILURE_RETENTION_SECONDS else 1
                each.last = now
            _put(self._networks, network, failures)
        _put(self._pairs, (network, _hash_long_name(user)), pair)
        return succeeded


def _hash_long_name(user: str) -> str:
    return user if len(user) <= NAME_CHARACTERS_MAX else sha256(user.encode(errors="surrogatepass")).hexdigest()


def _put(counts: dict[K, V], key: K, value: V) -> None:
    """Store a count of failed logins as the newest entry. Delete the oldest entry if there are more than COUNTS_MAX."""
    counts.pop(key, None)
    if len(counts) >= COUNTS_MAX:
        del counts[next(iter(counts))]
    counts[key] = value
