"""The store of a standalone node: commands are written to a local log, applied, and answered.

Commands that arrive while a write is under way wait and go together into the next: one write and one sync for all of
them. Nothing is applied, and nobody is answered, before that sync has returned; but for what `answers_early` names: it
is applied and answered once it is written, and whoever builds upon it waits until it is durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from itertools import takewhile
from typing import Final, NamedTuple, ParamSpec, TypeVar

from chronik.clock import Clock, SystemClock
from chronik.errors import StorageFailed, invariant, unexpected
from chronik.files import FileSystem
from chronik.ids import format_id, new_id
from chronik.limits import MIB
from chronik.metadata import levels
from chronik.metadata.apply import apply
from chronik.metadata.commands.cluster import CreateCluster, SetFeatureLevel
from chronik.metadata.commands.envelope import (
    COMMAND_BYTES_MAX,
    Command,
    Envelope,
    UnknownCommand,
    decode_command,
    encode_command,
)
from chronik.metadata.delta import Delta, difference
from chronik.metadata.image import FrozenImage, Image
from chronik.metadata.records import Result
from chronik.metadata.snapshot import encode_snapshot
from chronik.metadata.stores.early_answers import never_early
from chronik.metadata.stores.journal import Journal
from chronik.metadata.stores.store import BARRIER_SECONDS, Acks, StoreClosed, Subscriber
from chronik.meters import Histogram
from chronik.news import News
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.wal.snapshots import SnapshotWriter

SNAPSHOT_ENTRIES: Final = 100_000
SNAPSHOT_BYTES: Final = 64 * MIB
"""The most that a start has to replay: about two seconds."""

GROUP_BYTES_MAX: Final = 4 * MIB
"""Commands written together. A sync takes longer with more, and the first of them waits for all."""

PENDING_COMMANDS_MAX: Final = 50_000
PENDING_BYTES_MAX: Final = 64 * MIB
"""Commands that wait for their write. With more of them the disk does not keep up, and waiting longer helps nobody."""

APPLY_SLICE_SECONDS: Final = 0.005
"""How long commands are applied before others get the loop again."""

RESULTS_KEPT: Final = 64
"""This store never sends a command twice, so it needs no results; dropping them 64 at a time is cheaper."""

log = logging.getLogger("chronik.metadata.local_store")

P = ParamSpec("P")
T = TypeVar("T")


class Pending(NamedTuple):
    data: bytes
    envelope: Envelope
    answer: asyncio.Future[Result]


def one_thread() -> Executor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")


def report_fatal(error: BaseException) -> None:
    log.critical("metadata store stopped: %s", error, exc_info=unexpected(error))


class LocalStore:
    """See `MetadataStore`. `on_fatal` is called once, when the store stops because it must."""

    def __init__(
        self,
        files: FileSystem,
        *,
        node_id: int = 1,
        clock: Clock | None = None,
        on_fatal: Callable[[BaseException], None] = report_fatal,
        answers_early: Callable[[Command], bool] = never_early,
        snapshot_entries: int = SNAPSHOT_ENTRIES,
        snapshot_bytes: int = SNAPSHOT_BYTES,
        make_executor: Callable[[], Executor] = one_thread,
    ) -> None:
        self._journal = Journal(files)
        self._node_id = node_id
        self._clock = clock or SystemClock()
        self._on_fatal = on_fatal
        self._answers_early = answers_early
        self._snapshot_entries = snapshot_entries
        self._snapshot_bytes = snapshot_bytes
        self._make_executor = make_executor
        self._image = Image()
        self._incarnation = new_id()
        self._sequence = 0
        self._subscribers: list[Subscriber] = []
        self._pending: deque[Pending] = deque()
        self._pending_bytes = 0
        self._group: list[Pending] = []
        self._durable_index = 0
        self._syncs = News()
        self._wake = asyncio.Event()
        self._started = False
        self._closing = False
        self._failure: BaseException | None = None
        self._writer: asyncio.Task[None] | None = None
        self._snapshot: asyncio.Task[None] | None = None
        self._log_thread: Executor | None = None
        self._snapshot_thread: Executor | None = None

    @property
    def image(self) -> Image:
        return self._image

    @property
    def sync_times(self) -> Histogram:
        """How long syncs of its log took. Only after `start`."""
        return self._journal.sync_times

    async def start(self) -> None:
        """Raises DataDamaged when the folder does not hold what was written there, LevelNotSupported when a newer
        version has written it."""
        self._log_thread, self._snapshot_thread = self._make_executor(), self._make_executor()
        self._image = await self._in_thread(self._log_thread, self._journal.recover)
        self._durable_index = self._image.applied_index
        self._writer = asyncio.create_task(self._write_forever(), name="metadata writer")
        if not self._image.cluster_id:
            if levels.level_of(self._image.features) < levels.HIGHEST:
                await self.propose(SetFeatureLevel(levels.FEATURE, levels.HIGHEST))
            created = CreateCluster(cluster_id=format_id(new_id()), time_ms=self._clock.now_ms())
            result = await self.propose(created)
            log.info("cluster created: id=%s index=%d", created.cluster_id, result.index)
        self._started = True
        self._publish(difference(Image(), self._image))

    async def close(self) -> None:
        """Finishes what was proposed, then closes the files."""
        self._closing = True
        self._wake.set()
        if self._writer is not None:
            await self._writer
        if self._snapshot is not None:
            self._snapshot.cancel()
            with suppress(asyncio.CancelledError):
                await self._snapshot
        if self._log_thread is not None and self._snapshot_thread is not None:
            await self._in_thread(self._log_thread, self._journal.close)
            self._log_thread.shutdown()
            self._snapshot_thread.shutdown()
            self._log_thread = self._snapshot_thread = None

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)
        if self._started:
            subscriber(difference(Image(), self._image))

    is_shared: Final = False

    async def read_barrier(self, seconds: float = BARRIER_SECONDS) -> None:
        """Returns at once: what was answered was applied here first."""

    def is_durable(self, index: int) -> bool:
        return index <= self._durable_index

    async def wait_durable(self, index: int, seconds: float = BARRIER_SECONDS) -> None:
        """Returns at once but for what was answered early."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not self.is_durable(index):
            if self._failure is not None:
                raise StoreClosed(f"the metadata store has stopped: {self._failure}")
            if not await self._syncs.since(self._syncs.count, deadline - loop.time()):
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"What is at {index} is not on disk yet")

    async def propose(self, command: Command, *, acks: Acks = Acks.ALL) -> Result:
        """Ignores `acks`: with one disk and one image nothing is gained by an earlier answer."""
        self._refuse_new_work()
        pending = self._seal(command)
        self._pending.append(pending)
        self._pending_bytes += len(pending.data)
        self._wake.set()
        result = await pending.answer
        if result.code is not ErrorCode.NONE:
            raise KafkaError(result.code, result.message)
        return result

    def _refuse_new_work(self) -> None:
        invariant(self._writer is not None, "propose() before start()")
        if self._failure is not None:
            raise StorageFailed(f"the metadata store has stopped: {self._failure}")
        if self._closing:
            raise StoreClosed("the metadata store is closing")
        if len(self._pending) >= PENDING_COMMANDS_MAX or self._pending_bytes >= PENDING_BYTES_MAX:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many metadata changes are under way")

    def _seal(self, command: Command) -> Pending:
        """Encodes the command: what will be applied is what can be read back from the log, never the object given."""
        levels.refuse_above(command, levels.level_of(self.image.features))
        sequence = self._sequence + 1
        answered = (sequence - 1) // RESULTS_KEPT * RESULTS_KEPT
        try:
            data = encode_command(Envelope(self._node_id, self._incarnation, sequence, answered, command))
            envelope = decode_command(data)
        except (UnknownCommand, TypeError, ValueError, OverflowError) as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{type(command).__name__}: {error}") from error
        if len(data) > COMMAND_BYTES_MAX:
            message = f"{type(command).__name__} is larger than {COMMAND_BYTES_MAX} bytes"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        self._sequence = sequence
        return Pending(data, envelope, asyncio.get_running_loop().create_future())

    # --- writing and applying ---

    async def _write_forever(self) -> None:
        try:
            while await self._take_group():
                await self._answer_early()
                await self._sync_group()
                await self._apply(self._group)
                self._group = []
                if self._failure is None and self._snapshot_is_due():
                    await self._begin_snapshot()
        except Exception as error:
            self._stop(error)

    async def _take_group(self) -> bool:
        """Waits for commands and takes those that go together; returns False when no more will come."""
        while not self._pending:
            if self._closing or self._failure is not None:
                return False
            self._wake.clear()
            await self._wake.wait()
        self._group = []
        size = 0
        while self._pending and (not self._group or size + len(self._pending[0].data) <= GROUP_BYTES_MAX):
            pending = self._pending.popleft()
            size += len(pending.data)
            self._group.append(pending)
        self._pending_bytes -= size
        return True

    async def _answer_early(self) -> None:
        """Applies those commands that come first and need not wait for the sync. Others wait for what is before them:
        commands are applied in the order of the log."""
        early = list(takewhile(lambda pending: self._answers_early(pending.envelope.command), self._group))
        if early:
            self._journal.append([pending.data for pending in early])
            await self._apply(early)
            self._group = self._group[len(early) :]

    async def _sync_group(self) -> None:
        """Returns when the whole group is on disk, those commands included that were answered early."""
        assert self._log_thread is not None
        await self._in_thread(self._log_thread, self._journal.write, [pending.data for pending in self._group])
        self._durable_index = self._image.applied_index + len(self._group)
        self._syncs.tell()

    async def _apply(self, written: Sequence[Pending]) -> None:
        loop = asyncio.get_running_loop()
        slice_ends = loop.time() + APPLY_SLICE_SECONDS
        for pending in written:
            if loop.time() > slice_ends:
                await asyncio.sleep(0)
                slice_ends = loop.time() + APPLY_SLICE_SECONDS
            result, delta = apply(self._image, pending.envelope, self._image.applied_index + 1)
            self._publish(delta)
            if not pending.answer.done():
                pending.answer.set_result(result)

    def _publish(self, delta: Delta) -> None:
        if delta:
            for subscriber in self._subscribers:
                subscriber(delta)

    def _stop(self, error: Exception) -> None:
        """Tells all proposers: it is unknown whether the commands under way are on disk."""
        if self._failure is not None:
            return
        self._failure = error
        self._wake.set()
        self._syncs.tell()
        for pending in (*self._group, *self._pending):
            if not pending.answer.done():
                pending.answer.set_exception(StorageFailed(f"the metadata store has stopped: {error}"))
        self._group = []
        self._pending.clear()
        self._on_fatal(error)

    # --- snapshots ---

    def _snapshot_is_due(self) -> bool:
        if self._snapshot is not None and not self._snapshot.done():
            return False
        journal = self._journal
        return (
            journal.entries_since_snapshot >= self._snapshot_entries
            or journal.bytes_since_snapshot >= self._snapshot_bytes
        )

    async def _begin_snapshot(self) -> None:
        """Is called when every command written is applied, so that log and image are at the same index."""
        assert self._log_thread is not None
        writer = await self._in_thread(self._log_thread, self._journal.begin_snapshot)
        frozen = self._image.freeze()
        self._snapshot = asyncio.create_task(self._write_snapshot(frozen, writer), name="metadata snapshot")

    async def _write_snapshot(self, frozen: FrozenImage, writer: SnapshotWriter) -> None:
        assert self._log_thread is not None
        assert self._snapshot_thread is not None
        try:
            for chunk in encode_snapshot(frozen):
                await self._in_thread(self._snapshot_thread, writer.write, chunk)
            size = await self._in_thread(self._snapshot_thread, writer.commit)
            await self._in_thread(self._log_thread, self._journal.forget_through, frozen.applied_index)
            log.info("metadata snapshot at index %d: %d bytes", frozen.applied_index, size)
        except asyncio.CancelledError:
            await asyncio.shield(self._in_thread(self._snapshot_thread, writer.abandon))
            raise
        except Exception as error:
            self._stop(error)

    async def _in_thread(self, thread: Executor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(thread, lambda: function(*args, **kwargs))
