"""Takes proposals from a coordinator to the metadata store: in order, many at a time, each answered with its outcome.

While one wave of proposals is under way, what comes meanwhile is collected for the next. Until then the last `Entry` of
the queue may take in more: so a thousand groups that commit at once cost one entry of the log, not a thousand. When
there is a crowd, a rest follows each wave, for those whom it has answered to come back with more: a wave costs much the
same whatever it carries, and without the rest half of a crowd would always travel while the other half waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Set
from typing import Final, Protocol

import msgspec

from chronik.errors import StorageFailed
from chronik.metadata.commands.envelope import Command
from chronik.metadata.image import Image
from chronik.metadata.records import Result
from chronik.metadata.stores.store import Acks, StoreClosed
from chronik.protocol.errors import ErrorCode, KafkaError

WAVE_ENTRIES_MAX: Final = 1_000
"""Proposals under way together: a quarter of what a store takes of one node, which has other commands, too."""

CROWD_KEYS: Final = 10
"""So many keys at work together are a crowd. Fewer gain nothing by a rest: each of them would only wait longer."""

REST_OF_WAVE: Final = 0.5
"""The longest rest, as a part of the time that the wave took. It ends before that when all of the crowd have come."""

REST_STEP_SECONDS: Final = 0.001

REST_SECONDS_MAX: Final = 0.02
"""After a wave that took long for another reason, such as an election, nobody needs to wait for more to come."""

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


class _Single(msgspec.Struct):
    keys: frozenset[str]
    command: Command
    when_done: WhenDone
    acks: Acks = Acks.ALL
    """The state of a machine always waits for a majority."""

    def as_command(self) -> Command:
        return self.command

    def finish(self, outcome: Result | ErrorCode) -> None:
        self.when_done(outcome if isinstance(outcome, ErrorCode) else None)


class _Itemised(msgspec.Struct):
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
                    wave, began = self._next_wave(), time.monotonic()
                    is_answered = await self._propose_all(wave)
                    if self._closing and not is_answered:
                        return  # all nodes stop, it seems: each further wave would wait as long, and for nothing
                    crowd = _count_keys(wave) + _count_keys(self._queue)
                    if crowd >= CROWD_KEYS:
                        await self._rest(crowd, REST_OF_WAVE * (time.monotonic() - began))
        finally:
            for entry in self._queue:
                entry.finish(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def _rest(self, crowd: int, seconds: float) -> None:
        for _ in range(int(min(seconds, REST_SECONDS_MAX) / REST_STEP_SECONDS)):
            if self._closing or _count_keys(self._queue) >= crowd:
                return
            await asyncio.sleep(REST_STEP_SECONDS)

    async def _propose_all(self, wave: list[Entry]) -> bool:
        """Returns whether the outcome of any of them is known."""
        # A single one, as it mostly is, goes without a task of its own: that would cost it two turns of the loop.
        proposed = [self._propose(entry) for entry in wave]
        outcomes = [await proposed[0]] if len(proposed) == 1 else await asyncio.gather(*proposed)
        bugs = [_finish(entry, outcome) for entry, outcome in zip(wave, outcomes, strict=True)]
        for bug in bugs:
            if bug is not None:
                raise bug
        return not all(map(_is_unanswered, outcomes))

    async def _propose(self, entry: Entry) -> Result | Exception:
        try:
            return await self._store.propose(entry.as_command(), acks=entry.acks)
        except Exception as error:
            return error

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


def _count_keys(entries: list[Entry]) -> int:
    return sum(len(entry.keys) for entry in entries)


def _finish(entry: Entry, outcome: Result | Exception) -> Exception | None:
    """Returns an unexpected error and does not raise it: everybody must be answered before it takes the node down."""
    try:
        match outcome:
            case Result():
                entry.finish(outcome)
            case KafkaError():
                entry.finish(told_as(outcome.code))
            case _:
                entry.finish(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except Exception as bug:
        return bug
    # A store that stops says so itself.
    return None if isinstance(outcome, Result | KafkaError | StorageFailed | StoreClosed) else outcome


def _is_unanswered(outcome: Result | Exception) -> bool:
    return isinstance(outcome, KafkaError) and outcome.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)


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
