"""Takes proposals from a coordinator to the metadata store: in order, many at a time, each answered with its outcome.

While one wave of proposals is under way, what comes meanwhile is collected for the next. Until then the last `Entry` of
the queue may take in more: so a thousand groups that commit at once cost one entry of the log, not a thousand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Final, Protocol

from chronik.errors import StorageFailed
from chronik.metadata.commands.envelope import Command
from chronik.metadata.image import Image
from chronik.metadata.records import Result
from chronik.metadata.stores.store import Acks, StoreClosed
from chronik.protocol.errors import ErrorCode, KafkaError

WAVE_ENTRIES_MAX: Final = 1_000
"""Proposals under way together: a quarter of what a store takes of one node, which has other commands, too."""

WhenDone = Callable[[ErrorCode | None], None]


class ImageStore(Protocol):
    """What a coordinator needs of the metadata store."""

    @property
    def image(self) -> Image: ...

    async def propose(self, command: Command, *, acks: Acks = Acks.ALL) -> Result:
        """Returns when the command is applied here. Raises KafkaError when it was rejected or its outcome is unknown,
        StorageFailed or StoreClosed when the store takes no more."""


class Entry(Protocol):
    """One place in the queue: it becomes one command, and is told the outcome."""

    @property
    def keys(self) -> Set[str]:
        """The keys that it concerns: proposals for one key keep their order."""

    @property
    def acks(self) -> Acks: ...

    def as_command(self) -> Command: ...

    def finish(self, outcome: Result | ErrorCode) -> None: ...


@dataclass(slots=True)
class _Single:
    keys: frozenset[str]
    command: Command
    when_done: WhenDone
    acks: Acks = Acks.ALL
    """The state of a machine always waits for a majority."""

    def as_command(self) -> Command:
        return self.command

    def finish(self, outcome: Result | ErrorCode) -> None:
        self.when_done(outcome if isinstance(outcome, ErrorCode) else None)


@dataclass(slots=True)
class _Itemised:
    keys: frozenset[str]
    command: Command
    items: int
    waiter: asyncio.Future[list[ErrorCode]]
    acks: Acks = Acks.ALL

    def as_command(self) -> Command:
        return self.command

    def finish(self, outcome: Result | ErrorCode) -> None:
        errors = [outcome if isinstance(outcome, ErrorCode) else ErrorCode.NONE] * self.items
        if isinstance(outcome, Result):
            for failure in outcome.failures:
                errors[failure.item] = told_as(failure.code)
        if not self.waiter.done():
            self.waiter.set_result(errors)


class Proposals:
    def __init__(self, store: ImageStore) -> None:
        self._store = store
        self._queue: list[Entry] = []
        self._wakeup = asyncio.Event()
        self._closing = False

    def submit(self, key: str, command: Command, when_done: WhenDone) -> None:
        """Queues a command. `when_done` is called with None, or with the error that the client should be told."""
        self.put(_Single(frozenset((key,)), command, when_done))

    async def outcome(self, key: str, command: Command) -> ErrorCode | None:
        waiter: asyncio.Future[ErrorCode | None] = asyncio.get_running_loop().create_future()
        self.submit(key, command, lambda error: None if waiter.done() else waiter.set_result(error))
        return await waiter

    async def outcomes(self, key: str, command: Command, items: int) -> list[ErrorCode]:
        """Returns an error code for each item of a command whose items may fail one by one."""
        entry = _Itemised(frozenset((key,)), command, items, asyncio.get_running_loop().create_future())
        self.put(entry)
        return await entry.waiter

    def put(self, entry: Entry) -> None:
        self._queue.append(entry)
        self._wakeup.set()

    @property
    def last(self) -> Entry | None:
        """Returns what was put in last, if it is not under way yet."""
        return self._queue[-1] if self._queue else None

    def close(self) -> None:
        """`run` ends when everything submitted so far has its outcome, or the store is found to answer nobody."""
        self._closing = True
        self._wakeup.set()

    async def run(self) -> None:
        """Ends after `close`. Raises unexpected errors of the store, once everybody who waits has been answered."""
        try:
            while self._queue or not self._closing:
                await self._wakeup.wait()
                self._wakeup.clear()
                while self._queue:
                    is_answered = await self._propose_some()
                    if self._closing and not is_answered:
                        return  # all nodes stop, it seems: each further wave would wait as long, and for nothing
        finally:
            for entry in self._queue:
                entry.finish(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def _propose_some(self) -> bool:
        """Proposes the next wave, and returns whether the outcome of any of it is known."""
        wave = self._next_wave()
        tasks = [asyncio.ensure_future(self._store.propose(entry.as_command(), acks=entry.acks)) for entry in wave]
        await asyncio.wait(tasks)
        bugs = [_finish(entry, task) for entry, task in zip(wave, tasks, strict=True)]
        for bug in bugs:
            if bug is not None:
                raise bug
        return not all(map(_is_unanswered, tasks))

    def _next_wave(self) -> list[Entry]:
        """Takes the first entries of the queue, no two of which concern the same key: proposals that are under way
        together may be committed in any order, if one has to be sent again, and those for one key must not be."""
        seen: set[str] = set()
        count = 0
        for entry in self._queue[:WAVE_ENTRIES_MAX]:
            keys = entry.keys
            if not keys.isdisjoint(seen):
                break
            seen |= keys
            count += 1
        wave, self._queue = self._queue[:count], self._queue[count:]
        return wave


def _finish(entry: Entry, task: asyncio.Future[Result]) -> BaseException | None:
    """Returns an unexpected error and does not raise it: everybody must be answered before it takes the node down."""
    error = task.exception()
    try:
        if error is None:
            entry.finish(task.result())
        else:
            entry.finish(told_as(error.code) if isinstance(error, KafkaError) else ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except Exception as bug:
        return bug
    # A store that stops says so itself.
    return None if isinstance(error, KafkaError | StorageFailed | StoreClosed) else error


def _is_unanswered(task: asyncio.Future[Result]) -> bool:
    error = task.exception()
    return isinstance(error, KafkaError) and error.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)


def told_as(error: ErrorCode) -> ErrorCode:
    """Returns the error to tell clients for an error of the store: the same mapping as Kafka's."""
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
