"""TLS handshakes under way: how many there may be, in all and from one address, and who has to go.

Room is limited apart from that of the connections that have come through. When an address has its share, one of its own
that has not said a word makes room for the next; if all have spoken, the next is refused, so that those come to an end.
When there is no room at all, the address that has most gives one up.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from chronik import limits
from chronik.errors import invariant


class UnderWay(Hashable, Protocol):
    @property
    def host(self) -> str: ...

    @property
    def has_spoken(self) -> bool: ...


T = TypeVar("T", bound=UnderWay)


class Handshakes(Generic[T]):
    def __init__(
        self,
        handshakes_max: int = limits.TLS_HANDSHAKES_MAX,
        per_address_max: int = limits.TLS_HANDSHAKES_PER_ADDRESS_MAX,
    ) -> None:
        self._max = handshakes_max
        self._per_address_max = per_address_max
        self._by_host: dict[str, dict[T, None]] = {}  # the oldest first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def all(self) -> list[T]:
        return [each for group in self._by_host.values() for each in group]

    def refuses(self, host: str) -> bool:
        """Whether the next one of that address has to wait for those that are under way."""
        group = self._by_host.get(host, {})
        return len(group) >= self._per_address_max and _oldest_silent(group) is None

    def begin(self, handshake: T) -> T | None:
        """Notes one that is not refused. Returns who has to make room for it, if anybody, and forgets that one."""
        host = handshake.host
        group = self._by_host.get(host, {})
        leaves: T | None = None
        if len(group) >= self._per_address_max:
            leaves = _oldest_silent(group)
            invariant(leaves is not None, "an address has more TLS handshakes than its share")
        elif self._count >= self._max:
            crowd = max(self._by_host.values(), key=len)
            leaves = _oldest_silent(crowd) or next(iter(crowd))
        if leaves is not None:
            self.end(leaves)
        self._by_host.setdefault(host, {})[handshake] = None
        self._count += 1
        return leaves

    def end(self, handshake: T) -> None:
        """Forgets it. Does nothing the second time."""
        group = self._by_host.get(handshake.host)
        if group is None or handshake not in group:
            return
        del group[handshake]
        self._count -= 1
        if not group:
            del self._by_host[handshake.host]


def _oldest_silent(group: dict[T, None]) -> T | None:
    return next((each for each in group if not each.has_spoken), None)
