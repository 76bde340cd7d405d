"""The syncs of one log: what each covers, and who waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chronik.broker.flusher import Flusher
from chronik.log.partition import PartitionLog
from chronik.log.sync import SyncTicket
from chronik.protocol.errors import ErrorCode, KafkaError


def _tell_nobody(log: PartitionLog) -> None: ...


class Syncs:
    __slots__ = (
        "_bytes_appended",
        "_bytes_synced",
        "_bytes_syncing",
        "_flusher",
        "_next",
        "_now",
        "_on_synced",
        "is_abandoned",
        "log",
    )

    def __init__(self, flusher: Flusher, on_synced: Callable[[PartitionLog], None]) -> None:
        self.log: PartitionLog | None = None
        self.is_abandoned = False
        self._flusher = flusher
        self._on_synced = on_synced
        self._next: list[asyncio.Future[None]] = []  # waits for the next sync to begin
        self._now: list[asyncio.Future[None]] = []  # waits for the sync under way
        self._bytes_appended = 0
        self._bytes_syncing = 0
        self._bytes_synced = 0

    @property
    def unsynced_bytes(self) -> int:
        return self._bytes_appended - self._bytes_synced

    def appended(self, size: int) -> None:
        self._bytes_appended += size

    def request(self) -> None:
        self._flusher.request(self)

    def request_if_needed(self) -> None:
        if self.log is not None and self.log.needs_sync and not self.is_abandoned:
            self._flusher.request(self)

    async def settled(self) -> None:
        """Returns when no sync is under way."""
        await self._flusher.settled(self)

    async def all_synced(self) -> None:
        """Returns when everything that the log holds now is synced: by a sync that begins now, or by one that is under
        way, if nothing was written since.

        Raises UNKNOWN_TOPIC_OR_PARTITION when the partition goes away."""
        if self.log is None or self.is_abandoned:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.log.needs_sync:
            self._next.append(waiter)
            self._flusher.request(self)
        elif self.log.is_syncing:
            self._now.append(waiter)
        else:
            return
        await waiter

    def begin_sync(self) -> SyncTicket | None:
        if self.log is None or self.is_abandoned:
            return None
        ticket = self.log.begin_sync()
        self._bytes_syncing = self._bytes_appended
        self._now, self._next = self._next, []
        if ticket is None:
            self._end_waits()
        return ticket

    def complete_sync(self, ticket: SyncTicket) -> None:
        log = self.log
        if log is None:
            return
        log.complete_sync(ticket)
        self._bytes_synced = self._bytes_syncing
        if not self.is_abandoned:
            self._on_synced(log)
            self._end_waits()

    def abandon(self) -> None:
        """Ends all waits: nobody needs the log any more."""
        self.is_abandoned = True
        self._on_synced = _tell_nobody  # no cycle keeps whoever holds this log from being freed: see node/garbage
        for waiter in (*self._next, *self._now):
            if not waiter.done():
                waiter.set_exception(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        self._next, self._now = [], []

    def _end_waits(self) -> None:
        for waiter in self._now:
            if not waiter.done():
                waiter.set_result(None)
        self._now = []
