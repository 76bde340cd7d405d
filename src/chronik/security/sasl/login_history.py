"""Priorities of password checks, by the results of earlier ones. Pure.

Checking a password takes milliseconds of a core, whether it is right or wrong. While many networks try passwords, a
user who has logged in from the same network of late goes first, and a network without failures goes ahead of one with
failures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeVar

from chronik.security.sasl.work import Priority

K = TypeVar("K")

REMEMBERED_SECONDS: Final = 300.0
"""How long a failure lowers the priority of a network."""
VERIFIED_SECONDS: Final = 86_400.0
"""How long a successful login raises the priority of its user at its network."""
ENTRIES_MAX: Final = 10_000
"""Successes, and networks with failures, that are remembered. Beyond it, the oldest is dropped. Successes are kept
apart from failures: guesses from many networks cannot displace them."""


class LoginHistory:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._verified: dict[tuple[str, str], float] = {}
        """Times of successes by network and user, the oldest first."""
        self._failed: dict[str, float] = {}
        """Times of failures by network, the oldest first."""

    def priority(self, network: str, user: str) -> Priority:
        """Return the priority of a password check for the user."""
        now = self._now()
        if now - self._verified.get((network, user), -math.inf) < VERIFIED_SECONDS:
            return Priority.HIGH
        if now - self._failed.get(network, -math.inf) < REMEMBERED_SECONDS:
            return Priority.LOW
        return Priority.NORMAL

    def succeeded(self, network: str, user: str) -> None:
        _put(self._verified, (network, user), self._now())

    def failed(self, network: str, user: str) -> None:
        self._verified.pop((network, user), None)
        _put(self._failed, network, self._now())


def _put(times: dict[K, float], key: K, now: float) -> None:
    times.pop(key, None)
    if len(times) >= ENTRIES_MAX:
        del times[next(iter(times))]
    times[key] = now
