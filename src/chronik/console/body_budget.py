"""A memory budget for HTTP request bodies, divided between accounts. Performs no I/O."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T", bound=Hashable)


class BodyBudgetExceeded(Exception):
    """The body budget is exhausted, and the requesting account already uses the most memory."""


class _Held(NamedTuple):
    account: Hashable
    bytes: int


class BodyBudget(Generic[T]):
    """A memory budget for partially received request bodies.

    When the limit is exceeded, the account that uses the most bytes loses its largest body.
    """

    def __init__(self, bytes_max: int) -> None:
        self._max = bytes_max
        self._held: dict[T, _Held] = {}
        self._by_account: dict[Hashable, int] = {}

    @property
    def bytes(self) -> int:
        """The total number of reserved bytes."""
        return sum(self._by_account.values())

    def reserve(self, connection: T, account: Hashable, count: int) -> list[T]:
        """Reserve memory for the bytes of a request body that a connection has received so far.

        Returns:
            The connections whose bodies must be dropped to stay within the budget. Their memory is already released.

        Raises:
            BodyBudgetExceeded: The budget is exhausted and no other account uses more. The connection's memory is
                released.
        """
        self.release(connection)
        dropped: list[T] = []
        while self.bytes + count > self._max:
            largest_account = max(self._by_account, key=self._by_account.__getitem__, default=account)
            if self._by_account.get(largest_account, 0) <= self._by_account.get(account, 0) + count:
                raise BodyBudgetExceeded
            largest = max(
                (each for each, held in self._held.items() if held.account == largest_account),
                key=lambda each: self._held[each].bytes,
            )
            self.release(largest)
            dropped.append(largest)
        if count:
            self._held[connection] = _Held(account, count)
            self._by_account[account] = self._by_account.get(account, 0) + count
        return dropped

    def release(self, connection: T) -> None:
        """Release a connection's memory; do nothing if it holds none."""
        held = self._held.pop(connection, None)
        if held is None:
            return
        left = self._by_account.pop(held.account) - held.bytes
        if left:
            self._by_account[held.account] = left
