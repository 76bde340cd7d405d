"""Login history: prioritizes password checks by the results of earlier ones. Pure.

Checking a password takes milliseconds of CPU time, whether it is right or wrong. While many networks guess passwords,
users who recently logged in from the same network are checked first, then networks without recent failures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeVar

from chronik.security.sasl.fair_pool import Priority

K = TypeVar("K")

FAILURE_TTL_SECONDS: Final = 300.0
"""Seconds for which a failed login lowers the priority of its network."""
SUCCESS_TTL_SECONDS: Final = 86_400.0
"""Seconds for which a successful login raises the priority of its user on its network."""
ENTRIES_MAX: Final = 10_000
"""Maximum number of successes, and of networks with failures; the oldest entry is evicted. The limits are separate, so
that guesses from many networks cannot evict successes."""


class LoginHistory:
    """Recent results of password checks by network and user."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._verified: dict[tuple[str, str], float] = {}
        """Time of the last success by network and user, oldest first."""
        self._failed: dict[str, float] = {}
        """Time of the last failure by network, oldest first."""

    def priority(self, network: str, user: str) -> Priority:
        """Return the priority of checking a password of the user."""
        now = self._now()
        if now - self._verified.get((network, user), -math.inf) < SUCCESS_TTL_SECONDS:
            return Priority.HIGH
        if now - self._failed.get(network, -math.inf) < FAILURE_TTL_SECONDS:
            return Priority.LOW
        return Priority.NORMAL

    def record_success(self, network: str, user: str) -> None:
        """Record a successful login, which raises the priority of the user on the network."""
        _set_newest(self._verified, (network, user), self._now())

    def record_failure(self, network: str, user: str) -> None:
        """Record a failed login, which lowers the priority of the network, except for its other verified users."""
        self._verified.pop((network, user), None)
        _set_newest(self._failed, network, self._now())


def _set_newest(times: dict[K, float], key: K, now: float) -> None:
    """Set the key's time and move it to the end, evicting the oldest key if the dict is full."""
    times.pop(key, None)
    if len(times) >= ENTRIES_MAX:
        del times[next(iter(times))]
    times[key] = now
