"""Limit on concurrent TLS handshakes, in total and per client address.

The limit is separate from the one on established connections. If an address has reached its limit, one of its
handshakes without any received bytes is aborted in favor of the new one; if all have received bytes, the new one is
rejected, so that they can complete. If the total limit is reached, a handshake of the address with the most handshakes
is aborted.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from chronik import limits
from chronik.errors import check_invariant


class PendingHandshake(Hashable, Protocol):
    """A TLS handshake in progress."""

    @property
    def host(self) -> str: ...

    @property
    def has_received_bytes(self) -> bool: ...


T = TypeVar("T", bound=PendingHandshake)


class HandshakeLimiter(Generic[T]):
    """A limit on concurrent TLS handshakes, in total and per client address."""

    def __init__(
        self,
        handshakes_max: int = limits.TLS_HANDSHAKES_MAX,
        per_address_max: int = limits.TLS_HANDSHAKES_PER_ADDRESS_MAX,
    ) -> None:
        self._max = handshakes_max
        self._per_address_max = per_address_max
        self._by_host: dict[str, dict[T, None]] = {}  # per address, oldest first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def all(self) -> list[T]:
        """Return all handshakes in progress."""
        return [each for group in self._by_host.values() for each in group]

    def must_reject(self, host: str) -> bool:
        """Return whether to reject a new handshake, because the address has too many and none can be aborted."""
        group = self._by_host.get(host, {})
        return len(group) >= self._per_address_max and _find_oldest_without_bytes(group) is None

    def add(self, handshake: T) -> T | None:
        """Add a new handshake; return an older one that must be aborted because a limit is reached, if any."""
        host = handshake.host
        group = self._by_host.get(host, {})
        evicted: T | None = None
        if len(group) >= self._per_address_max:
            evicted = _find_oldest_without_bytes(group)
            check_invariant(evicted is not None, "an address has too many TLS handshakes, but none can be aborted")
        elif self._count >= self._max:
            largest = max(self._by_host.values(), key=len)
            evicted = _find_oldest_without_bytes(largest) or next(iter(largest))
        if evicted is not None:
            self.remove(evicted)
        self._by_host.setdefault(host, {})[handshake] = None
        self._count += 1
        return evicted

    def remove(self, handshake: T) -> None:
        """Remove a handshake; do nothing if it was already removed."""
        group = self._by_host.get(handshake.host)
        if group is None or handshake not in group:
            return
        del group[handshake]
        self._count -= 1
        if not group:
            del self._by_host[handshake.host]


def _find_oldest_without_bytes(group: dict[T, None]) -> T | None:
    return next((each for each in group if not each.has_received_bytes), None)
