"""Memory for request bodies of the HTTP port, divided between accounts. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T", bound=Hashable)


class OverBudget(Exception):
    """The account that asks for memory is itself the one that holds the most."""


class _Held(NamedTuple):
    account: Hashable
    bytes: int


class BodyBudget(Generic[T]):
    """The bytes of bodies that have arrived. When they exceed the limit, the account with the most bytes loses its
    largest body."""

    def __init__(self, bytes_max: int) -> None:
        self._max = bytes_max
        self._held: dict[T, _Held] = {}
        self._by_account: dict[Hashable, int] = {}

    @property
    def bytes(self) -> int:
        return sum(self._by_account.values())

    def hold(self, connection: T, account: Hashable, count: int) -> list[T]:
        """Record that a connection holds so many bytes. Return the connections whose bodies have to be dropped for it;
        their memory is released.

        Raises:
            OverBudget: the memory is exhausted, and no other account holds more. The connection's memory is released.
        """
        self.release(connection)
        dropped: list[T] = []
        while self.bytes + count > self._max:
            richest = max(self._by_account, key=self._by_account.__getitem__, default=account)
            if self._by_account.get(richest, 0) <= self._by_account.get(account, 0) + count:
                raise OverBudget
            largest = max(
                (each for each, held in self._held.items() if held.account == richest),
                key=lambda each: self._held[each].bytes,
            )
            self.release(largest)
            dropped.append(largest)
        if count:
            self._held[connection] = _Held(account, count)
            self._by_account[account] = self._by_account.get(account, 0) + count
        return dropped

    def release(self, connection: T) -> None:
        """Release a connection's memory; do nothing if it has none."""
        held = self._held.pop(connection, None)
        if held is None:
            return
        left = self._by_account.pop(held.account) - held.bytes
        if left:
            self._by_account[held.account] = left
