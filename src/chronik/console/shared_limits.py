"""Limits that connections to the HTTP port share: connection slots, and a memory budget for request bodies. No I/O.

Unauthenticated connections are counted by client network, authenticated ones by account. A client with many connections
loses one of its own; an authenticated connection that is serving a request is never closed for an unauthenticated one.
A part of the slots is reserved for unauthenticated connections, because every login starts with one. The budget for
bodies is divided between accounts.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

BodyT = TypeVar("BodyT", bound=Hashable)


class SlotHolder(Hashable, Protocol):
    """A connection that occupies one of a limited number of connection slots."""

    @property
    def is_busy(self) -> bool:
        """Whether the connection is serving a request."""


T = TypeVar("T", bound=SlotHolder)


UNAUTHENTICATED_DIVISOR: Final = 4
"""The number of connection slots divided by this number is reserved for unauthenticated connections."""


class _ConnectionSlot(msgspec.Struct, eq=False):
    network: str
    account: Hashable | None = None
    """The account of the connection (its user, or the network of an anonymous client); None if it is
    unauthenticated."""


class ConnectionSlots(Generic[T]):
    """The connection slots of the HTTP port, limited in total and per account."""

    def __init__(self, slots_max: int, per_account_max: int) -> None:
        self._max = slots_max
        self._authenticated_max = max(1, slots_max - slots_max // UNAUTHENTICATED_DIVISOR)
        self._per_account_max = per_account_max
        self._slots: dict[T, _ConnectionSlot] = {}
        """All connections, least recently active first. The per-network and per-account groups have the same order."""
        self._unauthenticated: dict[Hashable, dict[T, None]] = {}
        self._authenticated: dict[Hashable, dict[T, None]] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, connection: T) -> bool:
        return connection in self._slots

    def all(self) -> list[T]:
        """Return all connections, least recently active first."""
        return list(self._slots)

    def open(self, connection: T, network: str) -> T | None:
        """Assign a slot to a new connection. If there are too many, return a connection to close, otherwise None."""
        self._slots[connection] = _ConnectionSlot(network)
        self._unauthenticated.setdefault(network, {})[connection] = None
        return self._select_connection_to_evict(connection) if len(self._slots) > self._max else None

    def assign_account(self, connection: T, account: Hashable | None) -> T | None:
        """Charge a connection to the account of its latest request. None means unauthenticated.

        Returns:
            The connection to close because the account, or all accounts together, have too many; otherwise None.
        """
        slot = self._slots.get(connection)
        if slot is None:
            return None
        if slot.account != account:
            self._remove_from_group(connection, slot)
            slot.account = account
        group = self._get_slot_group(slot)
        group.pop(connection, None)
        group[connection] = None
        if account is None:
            return None
        if len(group) <= self._per_account_max:
            if sum(map(len, self._authenticated.values())) <= self._authenticated_max:
                return None
            group = max(self._authenticated.values(), key=len)
        others = [each for each in group if each is not connection] or [connection]
        return next((each for each in others if not each.is_busy), others[0])

    def mark_active(self, connection: T) -> None:
        """Mark a connection as the most recently active."""
        slot = self._slots.pop(connection, None)
        if slot is not None:
            self._slots[connection] = slot
            group = self._get_slot_group(slot)
            del group[connection]
            group[connection] = None

    def close(self, connection: T) -> None:
        """Release a connection's slot; do nothing if it has no slot."""
        slot = self._slots.pop(connection, None)
        if slot is not None:
            self._remove_from_group(connection, slot)

    def _select_connection_to_evict(self, new_connection: T) -> T:
        largest_group = max(self._unauthenticated.values(), key=len)
        if len(largest_group) == 1:  # Every network has one connection: choose among all of them.
            largest_group = {each: None for each, slot in self._slots.items() if slot.account is None}
        idle = next((each for each in largest_group if each is not new_connection and not each.is_busy), None)
        if idle is not None:
            return idle
        if len(largest_group) > 1:
            return new_connection if new_connection in largest_group else next(iter(largest_group))
        for account in sorted(self._authenticated.values(), key=len, reverse=True):
            idle = next((each for each in account if not each.is_busy), None)
            if idle is not None:
                return idle
        return new_connection

    def _get_slot_group(self, slot: _ConnectionSlot) -> dict[T, None]:
        if slot.account is None:
            return self._unauthenticated.setdefault(slot.network, {})
        return self._authenticated.setdefault(slot.account, {})

    def _remove_from_group(self, connection: T, slot: _ConnectionSlot) -> None:
        groups, key = (
            (self._unauthenticated, slot.network) if slot.account is None else (self._authenticated, slot.account)
        )
        group = groups[key]
        del group[connection]
        if not group:
            del groups[key]


class BodyBudgetExceeded(Exception):
    """The memory budget for request bodies is exhausted, and no other account uses more memory."""


class _ReservedBody(NamedTuple):
    account: Hashable
    bytes: int


class RequestBodyBudget(Generic[BodyT]):
    """A memory budget for partially received request bodies.

    When the limit is exceeded, the account that uses the most bytes loses its largest body.
    """

    def __init__(self, bytes_max: int) -> None:
        self._max = bytes_max
        self._held: dict[BodyT, _ReservedBody] = {}
        self._by_account: dict[Hashable, int] = {}

    @property
    def bytes(self) -> int:
        """The total number of reserved bytes."""
        return sum(self._by_account.values())

    def reserve(self, connection: BodyT, account: Hashable, count: int) -> list[BodyT]:
        """Reserve memory for the part of a request body that has been received.

        Returns:
            The connections whose bodies must be dropped to stay within the budget. Their memory is already released.

        Raises:
            BodyBudgetExceeded: The budget is exhausted and no other account uses more. The connection's memory is
                released.
        """
        self.release(connection)
        dropped: list[BodyT] = []
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
            self._held[connection] = _ReservedBody(account, count)
            self._by_account[account] = self._by_account.get(account, 0) + count
        return dropped

    def release(self, connection: BodyT) -> None:
        """Release a connection's reserved memory; do nothing if it has reserved none."""
        held = self._held.pop(connection, None)
        if held is None:
            return
        left = self._by_account.pop(held.account) - held.bytes
        if left:
            self._by_account[held.account] = left
