"""Delays between password guesses over HTTP, per client network and user.

Failures are counted twice: per network and user, and per network. Both counts decay with time only, except that a right
password clears the count of its own user at that network: an attacker who has an account cannot use it to reset the
delay of guesses at other accounts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Final, TypeVar

import msgspec

from chronik.addresses import network_of

K = TypeVar("K")
V = TypeVar("V")

REMEMBERED_SECONDS: Final = 300.0
"""How long after the last failure a count is kept."""
COUNTS_MAX: Final = 10_000
"""Networks, and pairs of network and user, whose failures are remembered. Beyond it, the count that changed least
recently is dropped."""
DELAY_SECONDS_FIRST: Final = 0.05
DELAY_SECONDS_MAX: Final = 5.0
"""The delay doubles with each failure up to this value; it must stay short, since it also holds for the user who is
being attacked."""
NAME_CHARACTERS_MAX: Final = 64
"""Longer names, which clients may make up, are remembered by their hash."""
WAITING_MAX: Final = 16
"""Attempts for one user from one network that may wait for each other."""


class TooManyAttempts(Exception):
    """Too many login attempts for one user from one network are waiting."""


class _Failures(msgspec.Struct, eq=False):
    count: int = 0
    last: float = float("-inf")


class _Pair(_Failures, eq=False):
    is_verified: bool = False
    """Whether the last attempt had the right password."""
    waiting: int = 0
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class LoginAttempts:
    """Runs password checks, after the delay that earlier failures have earned."""

    def __init__(self, now: Callable[[], float], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._now = now
        self._sleep = sleep
        self._networks: dict[str, _Failures] = {}
        self._pairs: dict[tuple[str, str], _Pair] = {}

    async def run(self, host: str, user: str, is_right: Callable[[], Awaitable[bool]]) -> bool:
        """Wait, check a password, and count the result. Attempts for one user from one network run one at a time.

        Raises:
            TooManyAttempts: more than WAITING_MAX attempts of the pair wait for each other.
        """
        network = network_of(host)
        pair = self._pair(network, user)
        if pair.is_verified and not pair.count:
            return self._counted(network, user, pair, await is_right())
        if pair.waiting >= WAITING_MAX:
            raise TooManyAttempts
        pair.waiting += 1
        try:
            async with pair.lock:
                await self._wait(network, pair)
                return self._counted(network, user, pair, await is_right())
        finally:
            pair.waiting -= 1

    async def delay_failure(self, host: str, user: str) -> None:
        """Count a failed attempt that was not run here, and wait before it is answered."""
        network = network_of(host)
        self._counted(network, user, self._pair(network, user), False)
        await self._sleep(self._delay(self._networks.get(network)))

    async def _wait(self, network: str, pair: _Pair) -> None:
        delay = self._delay(pair)
        if not pair.is_verified:
            delay = max(delay, self._delay(self._networks.get(network)))
        if delay:
            await self._sleep(delay)

    def _delay(self, failures: _Failures | None) -> float:
        if failures is None or not failures.count or self._now() - failures.last > REMEMBERED_SECONDS:
            return 0.0
        return min(DELAY_SECONDS_MAX, DELAY_SECONDS_FIRST * 2.0 ** min(failures.count - 1, 10))

    def _pair(self, network: str, user: str) -> _Pair:
        key = network, _short(user)
        pair = self._pairs.get(key)
        if pair is None:  # it is stored before the first attempt is checked, so that parallel ones share its lock
            pair = _Pair()
            _put(self._pairs, key, pair)
        return pair

    def _counted(self, network: str, user: str, pair: _Pair, was_right: bool) -> bool:
        now = self._now()
        if was_right:
            pair.count, pair.is_verified = 0, True
        else:
            failures = self._networks.get(network) or _Failures()
            for each in (pair, failures):
                each.count = each.count + 1 if now - each.last <= REMEMBERED_SECONDS else 1
                each.last = now
            _put(self._networks, network, failures)
        _put(self._pairs, (network, _short(user)), pair)
        return was_right


def _short(user: str) -> str:
    return user if len(user) <= NAME_CHARACTERS_MAX else sha256(user.encode(errors="surrogatepass")).hexdigest()


def _put(kept: dict[K, V], key: K, value: V) -> None:
    """Store a value as the most recent one, and drop the least recent one beyond COUNTS_MAX."""
    kept.pop(key, None)
    if len(kept) >= COUNTS_MAX:
        del kept[next(iter(kept))]
    kept[key] = value
