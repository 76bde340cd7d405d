"""A queue of proposals from a coordinator to the metadata store, proposed in batches and in order per key.

While a batch is in flight, later proposals are collected for the next one, and the last `ProposalEntry` of the queue
may still be extended: a thousand groups that commit together need one log entry. If many keys are active, a pause
follows each batch, in which answered clients can send their next requests. A batch costs about the same whatever its
size, and without the pause, half of the clients would always wait for the batch of the other half.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Set
from typing import Final, Protocol

import msgspec

from chronik.errors import StorageError
from chronik.metadata.commands.envelope import Command
from chronik.metadata.image import Image
from chronik.metadata.records import ApplyResult
from chronik.metadata.stores.store import Acks, StoreClosedError
from chronik.protocol.errors import ErrorCode, KafkaError

BATCH_ENTRIES_MAX: Final = 1_000
"""Maximum number of coordinator commands in flight: a quarter of the metadata store's limit."""

PAUSE_KEYS_MIN: Final = 10
"""Minimum number of active keys, such as groups, for a pause after a batch. With fewer, it would only add latency."""

PAUSE_FRACTION: Final = 0.5
"""Maximum pause between batches, as a fraction of the time that the previous batch took."""

PAUSE_STEP_SECONDS: Final = 0.001

PAUSE_SECONDS_MAX: Final = 0.02
"""Maximum pause between batches in seconds, for example after a batch that an election delayed."""

OutcomeCallback = Callable[[ErrorCode | None], None]


class CoordinatorStore(Protocol):
    """The metadata store as seen by a coordinator."""

    @property
    def image(self) -> Image: ...

    async def propose(self, command: Command, *, acks: Acks = Acks.ALL) -> ApplyResult:
        """Propose a command and wait until it is applied on this node.

        Raises KafkaError if the command was rejected or its outcome is unknown, and StorageError or StoreClosedError if
        the store has stopped.
        """


class ProposalEntry(Protocol):
    """An entry of the proposal queue: a metadata command and the handling of its outcome."""

    @property
    def keys(self) -> Set[str]:
        """Keys that the command changes, such as group ids. Commands that change the same key are applied in order."""

    @property
    def acks(self) -> Acks: ...

    def to_command(self) -> Command: ...

    def complete(self, outcome: ApplyResult | ErrorCode) -> None: ...


class _SingleOutcomeEntry(msgspec.Struct):
    """A queued metadata command with a single outcome."""

    keys: frozenset[str]
    command: Command
    when_done: OutcomeCallback
    acks: Acks = Acks.ALL
    """Always ALL, because the state of a group or transaction must be durable on a majority of nodes."""

    def to_command(self) -> Command:
        return self.command

    def complete(self, outcome: ApplyResult | ErrorCode) -> None:
        self.when_done(outcome if isinstance(outcome, ErrorCode) else None)


class _ItemizedOutcomeEntry(msgspec.Struct):
    """A queued metadata command with several items, each of which succeeds or fails separately."""

    keys: frozenset[str]
    command: Command
    items: int
    waiter: asyncio.Future[list[ErrorCode]]
    acks: Acks = Acks.ALL

    def to_command(self) -> Command:
        return self.command

    def complete(self, outcome: ApplyResult | ErrorCode) -> None:
        errors = [outcome if isinstance(outcome, ErrorCode) else ErrorCode.NONE] * self.items
        if isinstance(outcome, ApplyResult):
            for failure in outcome.failures:
                errors[failure.item] = to_client_error(failure.code)
        if not self.waiter.done():
            self.waiter.set_result(errors)


class ProposalQueue:
    """A queue of metadata commands that a coordinator proposes in batches."""

    def __init__(self, store: CoordinatorStore) -> None:
        self._store = store
        self._queue: list[ProposalEntry] = []
        self._wakeup = asyncio.Event()
        self._closing = False

    def submit(self, key: str, command: Command, when_done: OutcomeCallback) -> None:
        """Queue a metadata command. `when_done` is called with None, or with the error code for the client."""
        self.put(_SingleOutcomeEntry(frozenset((key,)), command, when_done))

    async def propose(self, key: str, command: Command) -> ErrorCode | None:
        """Propose a metadata command, and return None on success or the error code for the client."""
        waiter: asyncio.Future[ErrorCode | None] = asyncio.get_running_loop().create_future()
        self.submit(key, command, lambda error: None if waiter.done() else waiter.set_result(error))
        return await waiter

    async def propose_items(self, key: str, command: Command, items: int) -> list[ErrorCode]:
        """Propose a metadata command with several items, and return an error code for each item."""
        entry = _ItemizedOutcomeEntry(frozenset((key,)), command, items, asyncio.get_running_loop().create_future())
        self.put(entry)
        return await entry.waiter

    def put(self, entry: ProposalEntry) -> None:
        self._queue.append(entry)
        self._wakeup.set()

    @property
    def last_queued_entry(self) -> ProposalEntry | None:
        """The last queued entry, or None if all entries have been proposed."""
        return self._queue[-1] if self._queue else None

    def close(self) -> None:
        """Stop the queue after all queued commands are completed, or when the metadata store stops responding."""
        self._closing = True
        self._wakeup.set()

    async def run(self) -> None:
        """Propose queued commands until the queue is closed. Raise unexpected store errors after completing all
        entries.
        """
        try:
            while self._queue or not self._closing:
                await self._wakeup.wait()
                self._wakeup.clear()
                while self._queue:
                    batch, started = self._pop_next_batch(), time.monotonic()
                    is_responding = await self._propose_batch(batch)
                    if self._closing and not is_responding:
                        return  # the whole cluster seems to stop: further batches would only wait for the timeout
                    active_keys = _count_keys(batch) + _count_keys(self._queue)
                    if active_keys >= PAUSE_KEYS_MIN:
                        await self._wait_for_active_keys(active_keys, PAUSE_FRACTION * (time.monotonic() - started))
        finally:
            for entry in self._queue:
                entry.complete(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def _wait_for_active_keys(self, active_keys: int, seconds: float) -> None:
        for _ in range(int(min(seconds, PAUSE_SECONDS_MAX) / PAUSE_STEP_SECONDS)):
            if self._closing or _count_keys(self._queue) >= active_keys:
                return
            await asyncio.sleep(PAUSE_STEP_SECONDS)

    async def _propose_batch(self, batch: list[ProposalEntry]) -> bool:
        """Propose a batch of commands and complete their entries. Return False if no outcome is known."""
        # A single proposal, the common case, is not wrapped in a task, which would take two event-loop iterations.
        pending = [self._propose_entry(entry) for entry in batch]
        outcomes = [await pending[0]] if len(pending) == 1 else await asyncio.gather(*pending)
        bugs = [_complete_entry(entry, outcome) for entry, outcome in zip(batch, outcomes, strict=True)]
        for bug in bugs:
            if bug is not None:
                raise bug
        return not all(map(_is_outcome_unknown, outcomes))

    async def _propose_entry(self, entry: ProposalEntry) -> ApplyResult | Exception:
        try:
            return await self._store.propose(entry.to_command(), acks=entry.acks)
        except Exception as error:
            return error

    def _pop_next_batch(self) -> list[ProposalEntry]:
        """Remove and return the next batch of entries, at most one per key.

        After retries, proposals that are in flight at the same time may be committed in any order.
        """
        batch_keys: set[str] = set()
        count = 0
        for entry in self._queue[:BATCH_ENTRIES_MAX]:
            keys = entry.keys
            if not keys.isdisjoint(batch_keys):
                break
            batch_keys |= keys
            count += 1
        batch, self._queue = self._queue[:count], self._queue[count:]
        return batch


def _count_keys(entries: list[ProposalEntry]) -> int:
    return sum(len(entry.keys) for entry in entries)


def _complete_entry(entry: ProposalEntry, outcome: ApplyResult | Exception) -> Exception | None:
    """Pass the outcome of a command to its queue entry. Return an unexpected error, which the caller raises later."""
    try:
        match outcome:
            case ApplyResult():
                entry.complete(outcome)
            case KafkaError():
                entry.complete(to_client_error(outcome.code))
            case _:
                entry.complete(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except Exception as bug:
        return bug
    # A store that stops reports that itself.
    return None if isinstance(outcome, ApplyResult | KafkaError | StorageError | StoreClosedError) else outcome


def _is_outcome_unknown(outcome: ApplyResult | Exception) -> bool:
    return isinstance(outcome, KafkaError) and outcome.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)


def to_client_error(error: ErrorCode) -> ErrorCode:
    """Map an error code of the metadata store to the error code that Kafka returns to clients."""
    match error:
        case (
            ErrorCode.REQUEST_TIMED_OUT
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.LEADER_NOT_AVAILABLE
            | ErrorCode.THROTTLING_QUOTA_EXCEEDED
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case (
            ErrorCode.NOT_LEADER_OR_FOLLOWER
            | ErrorCode.KAFKA_STORAGE_ERROR
            | ErrorCode.NOT_CONTROLLER
            | ErrorCode.STALE_BROKER_EPOCH
        ):
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return error
