"""The way from the coordinator to the metadata store: in order, many at a time, and no answer before its outcome.

While one round of proposals is under way, what comes meanwhile is collected for the next. Offset commits that follow
each other become one command, so that a thousand groups committing at once cost one entry of the log, not a thousand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from chronik.errors import StorageFailed
from chronik.groups.config import COMMIT_BATCH_BYTES_MAX
from chronik.metadata.commands import (
    Command,
    CommitOffset,
    CommitOffsetBatch,
    DeleteConsumerGroup,
    DeleteOffsets,
    ExpireOffsets,
    UpdateConsumerGroup,
)
from chronik.metadata.offsets import OffsetSizes
from chronik.metadata.records import CommittedOffset, Group, Result
from chronik.metadata.store import Acks, StoreClosed
from chronik.protocol.errors import ErrorCode, KafkaError


class GroupImage(Protocol):
    """What the coordinator reads of the metadata image."""

    @property
    def groups(self) -> Mapping[str, Group]: ...

    def offsets(self, group_id: str) -> Mapping[tuple[str, int], CommittedOffset]: ...

    def offset_sizes(self, group_id: str) -> OffsetSizes: ...


class GroupStore(Protocol):
    @property
    def image(self) -> GroupImage: ...

    async def propose(self, command: Command, *, acks: Acks = Acks.ALL) -> Result:
        """Returns when the command is applied here. Raises KafkaError when it was rejected or its outcome is unknown,
        StorageFailed or StoreClosed when the store takes no more."""


WAVE_ENTRIES_MAX: Final = 1_000
"""Proposals under way together: a quarter of what a store takes of one node, which has other commands, too."""

_GROUP_COMMANDS = (UpdateConsumerGroup, DeleteConsumerGroup, DeleteOffsets, ExpireOffsets)

WhenDone = Callable[[ErrorCode | None], None]

WhenStored = Callable[[], None]

CommitErrors = tuple[ErrorCode, ...]
"""One per offset of the commit, in its order."""


@dataclass(slots=True)
class _Single:
    command: Command
    when_done: WhenDone

    @property
    def group_ids(self) -> set[str]:
        return {self.command.group_id} if isinstance(self.command, _GROUP_COMMANDS) else set()

    def as_command(self) -> Command:
        return self.command

    def finish(self, outcome: Result | ErrorCode) -> None:
        self.when_done(outcome if isinstance(outcome, ErrorCode) else None)


@dataclass(slots=True)
class _Batch:
    commits: list[CommitOffset] = field(default_factory=list)
    waiters: list[asyncio.Future[CommitErrors]] = field(default_factory=list)
    when_stored: list[WhenStored] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def group_ids(self) -> set[str]:
        return {commit.group_id for commit in self.commits}

    def as_command(self) -> Command:
        return CommitOffsetBatch(tuple(self.commits))

    def finish(self, outcome: Result | ErrorCode) -> None:
        """A failed batch fails all its callers; an applied one may still have refused some of its offsets."""
        failed = outcome if isinstance(outcome, ErrorCode) else ErrorCode.NONE
        errors = [[failed] * len(commit.offsets) for commit in self.commits]
        if isinstance(outcome, Result):
            for failure in outcome.failures:
                parts = range(len(errors[failure.item])) if failure.part < 0 else (failure.part,)
                for part in parts:
                    errors[failure.item][part] = told_as(failure.code)
        for waiter, commit_errors in zip(self.waiters, errors, strict=True):
            if not waiter.done():  # its connection may have closed, which does not undo the commit
                waiter.set_result(tuple(commit_errors))
        if isinstance(outcome, Result):
            for when_stored in self.when_stored:
                when_stored()


class Proposals:
    def __init__(self, store: GroupStore, offset_acks: Acks = Acks.ALL) -> None:
        self._store = store
        self._offset_acks = offset_acks
        self._queue: list[_Single | _Batch] = []
        self._wakeup = asyncio.Event()
        self._closing = False

    def submit(self, command: Command, when_done: WhenDone) -> None:
        """`when_done` gets None, or the error that the client should be told."""
        self._queue.append(_Single(command, when_done))
        self._wakeup.set()

    async def outcome(self, command: Command) -> ErrorCode | None:
        waiter: asyncio.Future[ErrorCode | None] = asyncio.get_running_loop().create_future()
        self.submit(command, lambda error: None if waiter.done() else waiter.set_result(error))
        return await waiter

    def commit(
        self, commit: CommitOffset, size_bytes: int, when_stored: WhenStored
    ) -> asyncio.Future[CommitErrors]:
        """`when_stored` is called even if nobody waits for the errors any more."""
        last = self._queue[-1] if self._queue else None
        if not isinstance(last, _Batch) or last.size_bytes + size_bytes > COMMIT_BATCH_BYTES_MAX:
            last = _Batch()
            self._queue.append(last)
        waiter: asyncio.Future[CommitErrors] = asyncio.get_running_loop().create_future()
        last.commits.append(commit)
        last.waiters.append(waiter)
        last.when_stored.append(when_stored)
        last.size_bytes += size_bytes
        self._wakeup.set()
        if self._offset_acks is Acks.NONE:
            waiter.set_result((ErrorCode.NONE,) * len(commit.offsets))
        return waiter

    def close(self) -> None:
        """`run` ends when everything submitted so far has its outcome, or the store is found to answer nobody."""
        self._closing = True
        self._wakeup.set()

    async def run(self) -> None:
        """Ends after `close`. Raises what nobody expected of the store, once everybody who waits has been answered."""
        try:
            while self._queue or not self._closing:
                await self._wakeup.wait()
                self._wakeup.clear()
                while self._queue:
                    is_answered = await self._propose_all()
                    if self._closing and not is_answered:
                        return  # all nodes stop, it seems: each further wave would wait as long, and for nothing
        finally:
            for entry in self._queue:
                entry.finish(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def _propose_all(self) -> bool:
        """Of some of the queue; whether any of it has an outcome that is known."""
        wave = self._next_wave()
        tasks = [
            asyncio.ensure_future(self._store.propose(entry.as_command(), acks=self._acks(entry))) for entry in wave
        ]
        await asyncio.wait(tasks)
        bugs = [_finish(entry, task) for entry, task in zip(wave, tasks, strict=True)]
        for bug in bugs:
            if bug is not None:
                raise bug
        return not all(map(_is_unanswered, tasks))

    def _acks(self, entry: _Single | _Batch) -> Acks:
        """What members believe about their group is never less than agreed."""
        return self._offset_acks if isinstance(entry, _Batch) else Acks.ALL

    def _next_wave(self) -> list[_Single | _Batch]:
        """The first entries, no two of which concern the same group: proposals that are under way together may be
        committed in any order, when one of them has to be sent again, and a group's own must not be."""
        seen: set[str] = set()
        count = 0
        for entry in self._queue[:WAVE_ENTRIES_MAX]:
            if entry.group_ids & seen:
                break
            seen |= entry.group_ids
            count += 1
        wave, self._queue = self._queue[:count], self._queue[count:]
        return wave


def _finish(entry: _Single | _Batch, task: asyncio.Future[Result]) -> BaseException | None:
    """What nobody expected is returned, not raised: everybody has to be answered before it takes the node down."""
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
    """What went wrong in the store, in words that clients of a coordinator understand. The same as Kafka's."""
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
