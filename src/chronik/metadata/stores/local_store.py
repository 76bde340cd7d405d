"""The metadata store of a standalone node: writes commands to a local log, applies and acknowledges them.

Commands that arrive during a write share the next write and sync (group commit). A command is applied and acknowledged
only after its sync, except those that `answers_early` selects: they are applied and acknowledged after the write, and
dependent work waits until they are durable.
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
from chronik.errors import StorageError, check_invariant, exc_info_if_unexpected
from chronik.files import FileSystem
from chronik.histogram import Histogram
from chronik.ids import format_id, generate_id
from chronik.limits import MIB
from chronik.metadata import levels
from chronik.metadata.apply import apply
from chronik.metadata.commands.cluster import CreateCluster, SetFeatureLevel
from chronik.metadata.commands.envelope import (
    COMMAND_BYTES_MAX,
    Command,
    Envelope,
    UnknownCommandError,
    decode_command,
    encode_command,
)
from chronik.metadata.commands.transactions import AddToTransaction, EndTransaction
from chronik.metadata.delta import Delta, diff_images
from chronik.metadata.image import FrozenImage, Image
from chronik.metadata.records import ApplyResult
from chronik.metadata.snapshot import encode_snapshot
from chronik.metadata.stores.journal import MetadataJournal
from chronik.metadata.stores.store import BARRIER_SECONDS, Acks, DeltaSubscriber, StoreClosedError
from chronik.notifier import Notifier
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.wal.snapshots import WalSnapshotWriter

SNAPSHOT_ENTRIES: Final = 100_000
SNAPSHOT_BYTES: Final = 64 * MIB
"""The number of log entries and the log size in bytes at which the store takes a snapshot of the metadata."""

GROUP_BYTES_MAX: Final = 4 * MIB
"""The maximum total size of the commands written with one sync, in bytes."""

PENDING_COMMANDS_MAX: Final = 50_000
PENDING_BYTES_MAX: Final = 64 * MIB
"""The maximum number and total size of commands waiting to be written. Above either limit, commands are rejected."""

APPLY_SLICE_SECONDS: Final = 0.005
"""The time in seconds for which the store applies commands before it yields to the event loop."""

RESULTS_KEPT: Final = 64
"""The number of command results kept before all are discarded; a standalone node never retries a command."""

log = logging.getLogger("chronik.metadata.local_store")

P = ParamSpec("P")
T = TypeVar("T")


def can_ack_before_sync(command: Command) -> bool:
    """Return whether `flush = "os"` allows acknowledging the command before the metadata log is synced.

    A power failure can lose the last commands of the log. The transactional id then returns to an earlier state, while
    its producer continues from the later one. Acknowledging a command early must be safe in this case:

    - AddToTransaction may be acknowledged early: later records and offsets that depend on it are rejected, and none are
      on disk, because they wait for the sync.
    - A commit may be acknowledged early: the whole transaction is open again, because its markers wait for the sync as
      well. It is continued by the producer or aborted after its timeout. Losing acknowledged data is what
      `flush = "os"` allows.
    - An abort may not: the producer's next commit would also commit the records that it considers aborted.
    - Staged offsets may not: the transaction would be committed without them.
    """
    return isinstance(command, AddToTransaction) or (isinstance(command, EndTransaction) and command.commit)


def never_ack_early(command: Command) -> bool:
    """Return False, so that every command is synced before it is acknowledged."""
    return False


class PendingCommand(NamedTuple):
    """An encoded command that the store has not acknowledged yet, with the future for its result."""

    data: bytes
    envelope: Envelope
    answer: asyncio.Future[ApplyResult]


def create_single_thread_executor() -> Executor:
    """Return an executor with a single thread."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")


def log_fatal_error(error: BaseException) -> None:
    """Log that the store has stopped because of an error."""
    log.critical(
        "metadata store stopped: %s; restart the node to recover from the log",
        error,
        exc_info=exc_info_if_unexpected(error),
    )


class LocalStore:
    """The metadata store of a standalone node (see `MetadataStore`).

    `on_fatal` is called once if an error stops the store.
    """

    def __init__(
        self,
        files: FileSystem,
        *,
        node_id: int = 1,
        clock: Clock | None = None,
        on_fatal: Callable[[BaseException], None] = log_fatal_error,
        answers_early: Callable[[Command], bool] = never_ack_early,
        snapshot_entries: int = SNAPSHOT_ENTRIES,
        snapshot_bytes: int = SNAPSHOT_BYTES,
        make_executor: Callable[[], Executor] = create_single_thread_executor,
    ) -> None:
        self._journal = MetadataJournal(files)
        self._node_id = node_id
        self._clock = clock or SystemClock()
        self._on_fatal = on_fatal
        self._answers_early = answers_early
        self._snapshot_entries = snapshot_entries
        self._snapshot_bytes = snapshot_bytes
        self._make_executor = make_executor
        self._image = Image()
        self._incarnation = generate_id()
        self._sequence = 0
        self._subscribers: list[DeltaSubscriber] = []
        self._pending: deque[PendingCommand] = deque()
        self._pending_bytes = 0
        self._group: list[PendingCommand] = []
        self._durable_index = 0
        self._syncs = Notifier()
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
        """Return the histogram of log sync durations. Available after `start`."""
        return self._journal.sync_times

    async def start(self) -> None:
        """Recover the image from disk, and create the cluster on the first start.

        Raises:
            DamagedDataError: The files are damaged.
            UnsupportedLevelError: A newer version has written them.
        """
        self._log_thread, self._snapshot_thread = self._make_executor(), self._make_executor()
        self._image = await self._run_in_executor(self._log_thread, self._journal.recover)
        self._durable_index = self._image.applied_index
        self._writer = asyncio.create_task(self._write_pending_commands(), name="metadata writer")
        if not self._image.cluster_id:
            if levels.get_cluster_level(self._image.features) < levels.HIGHEST:
                await self.propose(SetFeatureLevel(levels.FEATURE_NAME, levels.HIGHEST))
            created = CreateCluster(cluster_id=format_id(generate_id()), time_ms=self._clock.now_ms())
            result = await self.propose(created)
            log.info("cluster created: id=%s index=%d", created.cluster_id, result.index)
        self._started = True
        self._publish(diff_images(Image(), self._image))

    async def close(self) -> None:
        """Complete the pending commands, then close the files."""
        self._closing = True
        self._wake.set()
        if self._writer is not None:
            await self._writer
        if self._snapshot is not None:
            self._snapshot.cancel()
            with suppress(asyncio.CancelledError):
                await self._snapshot
        if self._log_thread is not None and self._snapshot_thread is not None:
            await self._run_in_executor(self._log_thread, self._journal.close)
            self._log_thread.shutdown()
            self._snapshot_thread.shutdown()
            self._log_thread = self._snapshot_thread = None

    def subscribe(self, subscriber: DeltaSubscriber) -> None:
        self._subscribers.append(subscriber)
        if self._started:
            subscriber(diff_images(Image(), self._image))

    is_shared: Final = False

    async def read_barrier(self, seconds: float = BARRIER_SECONDS) -> None:
        """Return immediately: the local image contains every acknowledged command."""

    def is_durable(self, index: int) -> bool:
        return index <= self._durable_index

    async def wait_durable(self, index: int, seconds: float = BARRIER_SECONDS) -> None:
        """Wait until the command at `index` is synced. Only commands acknowledged early need to wait."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not self.is_durable(index):
            if self._failure is not None:
                raise StoreClosedError(f"the metadata store has stopped: {self._failure}")
            if not await self._syncs.wait(self._syncs.generation, deadline - loop.time()):
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, f"The metadata command at index {index} was not synced in time"
                )

    async def propose(self, command: Command, *, acks: Acks = Acks.ALL) -> ApplyResult:
        """Write, apply and acknowledge a command. `acks` is ignored, because there is only one disk."""
        self._check_can_propose()
        pending = self._encode_proposal(command)
        self._pending.append(pending)
        self._pending_bytes += len(pending.data)
        self._wake.set()
        result = await pending.answer
        if result.code is not ErrorCode.NONE:
            raise KafkaError(result.code, result.message)
        return result

    def _check_can_propose(self) -> None:
        check_invariant(self._writer is not None, "propose() before start()")
        if self._failure is not None:
            raise StorageError(f"the metadata store has stopped: {self._failure}")
        if self._closing:
            raise StoreClosedError("the metadata store is closing")
        if len(self._pending) >= PENDING_COMMANDS_MAX or self._pending_bytes >= PENDING_BYTES_MAX:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many metadata commands are pending")

    def _encode_proposal(self, command: Command) -> PendingCommand:
        """Encode a command with its node id and sequence number, and check that it can be decoded."""
        levels.check_command_level(command, levels.get_cluster_level(self.image.features))
        sequence = self._sequence + 1
        answered = (sequence - 1) // RESULTS_KEPT * RESULTS_KEPT
        try:
            data = encode_command(Envelope(self._node_id, self._incarnation, sequence, answered, command))
            envelope = decode_command(data)
        except (UnknownCommandError, TypeError, ValueError, OverflowError) as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{type(command).__name__}: {error}") from error
        if len(data) > COMMAND_BYTES_MAX:
            message = f"{type(command).__name__} is larger than {COMMAND_BYTES_MAX} bytes"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        self._sequence = sequence
        return PendingCommand(data, envelope, asyncio.get_running_loop().create_future())

    # --- writing and applying ---

    async def _write_pending_commands(self) -> None:
        try:
            while await self._take_command_group():
                await self._acknowledge_before_sync()
                await self._write_and_sync_group()
                await self._apply_commands(self._group)
                self._group = []
                if self._failure is None and self._is_snapshot_due():
                    await self._begin_snapshot()
        except Exception as error:
            self._stop(error)

    async def _take_command_group(self) -> bool:
        """Wait for commands and select those to write with one sync. Return False if the store is closing or failed."""
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

    async def _acknowledge_before_sync(self) -> None:
        """Write, apply and acknowledge the leading commands of the group that need no sync.

        Commands are applied in log order, so those after the first that needs a sync wait for it.
        """
        early = list(takewhile(lambda pending: self._answers_early(pending.envelope.command), self._group))
        if early:
            self._journal.append([pending.data for pending in early])
            await self._apply_commands(early)
            self._group = self._group[len(early) :]

    async def _write_and_sync_group(self) -> None:
        """Write the remaining commands of the group and sync the metadata log."""
        assert self._log_thread is not None
        await self._run_in_executor(self._log_thread, self._journal.write, [pending.data for pending in self._group])
        self._durable_index = self._image.applied_index + len(self._group)
        self._syncs.notify()

    async def _apply_commands(self, written: Sequence[PendingCommand]) -> None:
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
        """Stop the store and fail all proposals, because it is unknown whether pending commands are on disk."""
        if self._failure is not None:
            return
        self._failure = error
        self._wake.set()
        self._syncs.notify()
        for pending in (*self._group, *self._pending):
            if not pending.answer.done():
                pending.answer.set_exception(StorageError(f"the metadata store has stopped: {error}"))
        self._group = []
        self._pending.clear()
        self._on_fatal(error)

    # --- snapshots ---

    def _is_snapshot_due(self) -> bool:
        if self._snapshot is not None and not self._snapshot.done():
            return False
        journal = self._journal
        return (
            journal.entries_since_snapshot >= self._snapshot_entries
            or journal.bytes_since_snapshot >= self._snapshot_bytes
        )

    async def _begin_snapshot(self) -> None:
        """Start writing a snapshot of the image in the background. All written commands must have been applied."""
        assert self._log_thread is not None
        writer = await self._run_in_executor(self._log_thread, self._journal.begin_snapshot)
        frozen = self._image.freeze()
        self._snapshot = asyncio.create_task(self._write_snapshot(frozen, writer), name="metadata snapshot")

    async def _write_snapshot(self, frozen: FrozenImage, writer: WalSnapshotWriter) -> None:
        assert self._log_thread is not None
        assert self._snapshot_thread is not None
        try:
            for chunk in encode_snapshot(frozen):
                await self._run_in_executor(self._snapshot_thread, writer.write, chunk)
            size = await self._run_in_executor(self._snapshot_thread, writer.commit)
            await self._run_in_executor(self._log_thread, self._journal.truncate_through, frozen.applied_index)
            log.info("metadata snapshot written: index=%d bytes=%d", frozen.applied_index, size)
        except asyncio.CancelledError:
            await asyncio.shield(self._run_in_executor(self._snapshot_thread, writer.abandon))
            raise
        except Exception as error:
            self._stop(error)

    async def _run_in_executor(
        self, thread: Executor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await asyncio.get_running_loop().run_in_executor(thread, lambda: function(*args, **kwargs))
