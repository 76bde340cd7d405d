"""Waiters for a sync need one that started after their append, and only one."""

from __future__ import annotations

import asyncio
import errno
import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from chronik.broker.flusher import Flushable, Flusher
from chronik.broker.recent_batches import RecentBatchBudget
from chronik.broker.replica import Replica
from chronik.broker.requests.produced_records import ProduceRules
from chronik.broker.uncommitted import NodeUncommittedBytes
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.log.partition_log import PartitionLog
from chronik.log.sync import SyncTask
from chronik.metadata.records import Partition, Topic
from chronik.protocol.errors import ErrorCode, KafkaError


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
