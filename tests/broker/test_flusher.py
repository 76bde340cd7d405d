"""Group commit: many appends share one sync, a failed sync commits nothing, and waiters need a later sync."""

from __future__ import annotations

import asyncio
import errno
import gc
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from chronik.broker.flusher import INLINE_AFTER_FAST_SYNCS, INLINE_BYTES_MAX, Flushable, Flusher
from chronik.broker.recent_batches import RecentBatchBudget
from chronik.broker.replica import Replica
from chronik.broker.requests.produced_records import ProduceRules
from chronik.broker.uncommitted import NodeUncommittedBytes
from chronik.errors import StorageError
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.log.partition_log import PartitionLog
from chronik.log.sync import SyncTask
from chronik.metadata.records import Partition, Topic
from chronik.protocol.errors import ErrorCode, KafkaError


class Ticket:
    def __init__(self, log: FakeLog, end: int) -> None:
        self.log = log
        self.end = end
        self.is_single_file = log.is_single_file

    def run(self) -> None:
        self.log.gate.wait(10)
        self.log.runs += 1
        self.log.threads.append(threading.current_thread())
        if self.log.broken:
            raise StorageError("the disk is gone")


class FakeLog:
    def __init__(self) -> None:
        self.end = self.synced = self.runs = 0
        self.broken = False
        self.is_single_file = True
        self.unsynced_bytes = 100
        self.threads: list[threading.Thread] = []
        self.gate = threading.Event()
        self.gate.set()

    def begin_sync(self) -> SyncTask | None:
        return cast(SyncTask, Ticket(self, self.end)) if self.end > self.synced else None

    def complete_sync(self, ticket: SyncTask) -> None:
        self.synced = cast(Ticket, ticket).end


def test_appends_during_sync_share_the_next_sync() -> None:
    async def scenario() -> None:
        log = FakeLog()
        flusher = Flusher(lambda error: pytest.fail(str(error)))
        log.gate.clear()
        log.end = 1
        flusher.request_sync(log)
        await asyncio.sleep(0)  # starts the first sync
        for end in range(2, 100):
            log.end = end
            flusher.request_sync(log)
        log.gate.set()
        await asyncio.wait_for(flusher.drain(), 10)
        assert (log.synced, log.runs) == (99, 2)
        flusher.close()

    asyncio.run(scenario())


def test_appends_of_one_loop_iteration_share_a_sync() -> None:
    async def scenario() -> None:
        log = FakeLog()
        flusher = Flusher(lambda error: pytest.fail(str(error)))
        for end in range(1, 10):
            log.end = end
            flusher.request_sync(log)
        await asyncio.wait_for(flusher.drain(), 10)
        assert (log.synced, log.runs) == (9, 1)
        flusher.close()

    asyncio.run(scenario())


def test_no_sync_runs_after_a_failed_sync() -> None:
    async def scenario() -> None:
        failures: list[BaseException] = []
        log = FakeLog()
        flusher = Flusher(failures.append)
        log.broken, log.end = True, 1
        flusher.request_sync(log)
        await asyncio.wait_for(flusher.drain(), 10)
        log.broken, log.end = False, 2
        flusher.request_sync(log)
        await asyncio.wait_for(flusher.drain(), 10)
        assert log.synced == 0
        assert [str(failure) for failure in failures] == ["the disk is gone"]
        flusher.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("step", ["begin_sync", "complete_sync"])
def test_exception_in_log_is_reported_as_failure(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        failures: list[BaseException] = []
        log = FakeLog()
        log.end = 1

        def break_it(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(log, step, break_it)
        flusher = Flusher(failures.append)
        flusher.request_sync(log)
        await asyncio.wait_for(flusher.drain(), 10)
        assert [type(failure) for failure in failures] == [ZeroDivisionError]
        flusher.close()

    asyncio.run(scenario())


async def sync_once(flusher: Flusher, log: FakeLog) -> bool:
    """Return whether the event loop ran the sync inline."""
    log.end += 1
    flusher.request_sync(log)
    await asyncio.wait_for(flusher.drain(), 10)
    assert log.synced == log.end
    return log.threads[-1] is threading.current_thread()


def test_small_syncs_run_inline_while_disk_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        log = FakeLog()
        flusher = Flusher(lambda error: pytest.fail(str(error)))
        monkeypatch.setattr("chronik.broker.flusher.INLINE_SECONDS_MAX", 10.0)
        assert not any([await sync_once(flusher, log) for _ in range(INLINE_AFTER_FAST_SYNCS)])
        assert await sync_once(flusher, log)
        log.unsynced_bytes = INLINE_BYTES_MAX
        assert await sync_once(flusher, log)
        log.unsynced_bytes = INLINE_BYTES_MAX + 1
        assert not await sync_once(flusher, log), "too many bytes for the event loop"
        log.unsynced_bytes, log.is_single_file = 100, False
        assert not await sync_once(flusher, log), "the task syncs more than one file"
        log.is_single_file = True
        assert await sync_once(flusher, log)
        monkeypatch.setattr("chronik.broker.flusher.INLINE_SECONDS_MAX", 0.0)
        assert await sync_once(flusher, log), "this sync turns out to be slow"
        assert not await sync_once(flusher, log), "the next sync runs in a thread"
        flusher.close()

    asyncio.run(scenario())


def test_syncs_of_several_logs_run_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        logs = [FakeLog(), FakeLog()]
        flusher = Flusher(lambda error: pytest.fail(str(error)))
        monkeypatch.setattr("chronik.broker.flusher.INLINE_SECONDS_MAX", 10.0)
        for _ in range(INLINE_AFTER_FAST_SYNCS):
            await sync_once(flusher, logs[0])
        for log in logs:
            log.end += 1
            flusher.request_sync(log)
        await asyncio.wait_for(flusher.drain(), 10)
        assert threading.current_thread() not in [logs[0].threads[-1], logs[1].threads[-1]]
        flusher.close()

    asyncio.run(scenario())


class BusyLog:
    """A log with continuous writes, which always has something to sync."""

    needs_sync = True
    is_syncing = False
    log_end_offset = synced_offset = log_start_offset = 0
    epochs = SimpleNamespace(assign=lambda epoch, start_offset: None)

    def begin_sync(self) -> SyncTask:
        return cast(SyncTask, object())

    def complete_sync(self, ticket: SyncTask) -> None: ...


class ManualFlusher:
    def __init__(self) -> None:
        self.requested = 0

    def request_sync(self, log: Flushable) -> None:
        self.requested += 1

    async def wait_until_idle(self, log: Flushable) -> None: ...


class NoOffsets:
    def record(self, topic_id: bytes, partition: int, offset: int) -> None: ...


class OnePartition:
    importing = False
    name, id = "topic", bytes(16)

    partitions = (Partition(replicas=(1,), isr=(1,), leader=1),)


def replica(kind: type[Replica] = Replica, offsets: object = None) -> Replica:
    made = kind(
        1,
        cast(Topic, OnePartition()),
        0,
        ProduceRules(max_message_bytes=1000),
        cast(Callable[[Replica], PartitionLog], lambda _: BusyLog()),
        cast(SyncedOffsets, offsets or NoOffsets()),
        cast(Flusher, ManualFlusher()),
        RecentBatchBudget(),
        NodeUncommittedBytes(),
        flush_each_append=True,
    )
    made.assume_role(OnePartition.partitions[0], 0.0)
    made.open()
    return made


def sync(busy: Replica) -> None:
    ticket = busy.syncer.begin_sync()
    assert ticket is not None
    busy.syncer.complete_sync(ticket)


def test_wait_until_synced_requires_sync_started_after_append() -> None:
    async def scenario() -> None:
        busy = replica()
        under_way = busy.syncer.begin_sync()
        assert under_way is not None
        waiting = asyncio.create_task(busy.syncer.wait_until_synced())
        await asyncio.sleep(0)
        busy.syncer.complete_sync(under_way)
        await asyncio.sleep(0)
        assert not waiting.done()
        sync(busy)
        await asyncio.wait_for(waiting, 10)

    asyncio.run(scenario())


def test_waiters_are_not_woken_when_recording_synced_offset_fails() -> None:
    class FullDisk:
        def record(self, topic_id: bytes, partition: int, offset: int) -> None:
            raise OSError(errno.ENOSPC, "no space left on device")

    async def scenario() -> None:
        busy = replica(offsets=FullDisk())
        waiting = asyncio.create_task(busy.syncer.wait_until_synced())
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="no space left"):
            sync(busy)
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()

    asyncio.run(scenario())


def test_abandoned_replica_is_freed_without_garbage_collector() -> None:
    """The garbage collector no longer examines long-lived objects: see node/garbage."""

    class Watched(Replica):
        __slots__ = ("__weakref__",)

    async def scenario() -> None:
        busy = replica(Watched)
        freed = weakref.ref(busy)
        busy.abandon()
        await busy.release()
        del busy
        assert freed() is None

    gc.disable()
    try:
        asyncio.run(scenario())
    finally:
        gc.enable()


@pytest.mark.parametrize("begun", [False, True])
def test_sync_waiters_fail_when_topic_is_deleted(begun: bool) -> None:
    async def scenario() -> None:
        busy = replica()
        waiting = asyncio.create_task(busy.syncer.wait_until_synced())
        await asyncio.sleep(0)
        ticket = busy.syncer.begin_sync() if begun else None
        busy.abandon()
        if ticket is not None:
            busy.syncer.complete_sync(ticket)
        with pytest.raises(KafkaError) as deleted:
            await asyncio.wait_for(waiting, 10)
        assert deleted.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(scenario())


def test_cancelled_sync_waiters_are_ignored() -> None:
    async def scenario() -> None:
        busy = replica()
        waiting = asyncio.create_task(busy.syncer.wait_until_synced())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        sync(busy)

    asyncio.run(scenario())


def test_records_are_not_durable_during_sync() -> None:
    async def scenario() -> None:
        quiet = replica()
        under_way = quiet.syncer.begin_sync()
        assert under_way is not None
        log = cast(BusyLog, quiet.log)
        log.needs_sync, log.is_syncing = False, True  # nothing was written since the sync started
        waiting = asyncio.ensure_future(quiet.syncer.wait_until_synced())
        await asyncio.sleep(0)
        assert not waiting.done()
        quiet.syncer.complete_sync(under_way)
        await asyncio.wait_for(waiting, 10)

    asyncio.run(scenario())
