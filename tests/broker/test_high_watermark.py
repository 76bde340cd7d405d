"""The high watermark of a leader, and the requests that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from chronik.broker.flusher import Flushable, Flusher
from chronik.broker.recent_batches import RecentBatchBudget
from chronik.broker.replica import Replica
from chronik.broker.requests.delayed_fetch import DelayedFetch
from chronik.broker.requests.produced_records import ProduceRules, ValidatedRecords
from chronik.broker.uncommitted import NodeUncommittedBytes
from chronik.clock import SystemClock
from chronik.files import FileCache
from chronik.log.config import LogConfig
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.log.partition_log import PartitionLog
from chronik.metadata.records import Partition, Topic
from chronik.protocol.batch import iter_batches, validate_produced_batches
from chronik.protocol.control_records import TransactionMarker, parse_transaction_marker_batch
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.records import Record, encode_batch
from chronik.request_reply import EarlyCompletion
from tests.files.simulated_files import SimulatedFileSystem

PARTITION = Partition(replicas=(1, 2, 3), isr=(1, 2), leader=1)
TOPIC = Topic(bytes(15) + b"\1", "topic", (PARTITION,), {}, 0)

ELSEWHERE = Partition((1, 2, 3), (2, 3), leader=2, leader_epoch=1, partition_epoch=1)


class ManualFlusher:
    def request_sync(self, log: Flushable) -> None: ...


class FakeFollowerBroker:
    broker_epoch = 7
    fetched_at = 0.0


def leader(rules: ProduceRules = ProduceRules(max_message_bytes=1000)) -> Replica:  # noqa: B008
    files = SimulatedFileSystem()
    cache = FileCache(files, 10)

    def open_log(_: Replica) -> PartitionLog:
        return PartitionLog.open(files, cache, "topics/t/0", LogConfig(), SystemClock())

    flusher = cast(Flusher, ManualFlusher())
    synced = SyncedOffsets(files, "synced-offsets")
    replica = Replica(
        1,
        TOPIC,
        0,
        rules,
        cast(Callable[[Replica], PartitionLog], open_log),
        synced,
        flusher,
        RecentBatchBudget(),
        NodeUncommittedBytes(),
        flush_each_append=True,
    )
    replica.assume_role(PARTITION, 0.0)
    replica.open()
    return replica


def produce(replica: Replica) -> None:
    buffer = bytearray(encode_batch([Record(0, -1, b"k", b"v" * 30)]))
    replica.append(ValidatedRecords(buffer, validate_produced_batches(buffer)))


def sync(replica: Replica) -> None:
    ticket = replica.syncer.begin_sync()
    assert ticket is not None
    ticket.run()
    replica.syncer.complete_sync(ticket)


def test_high_watermark_is_smallest_durable_offset_of_isr() -> None:
    replica = leader()
    produce(replica)
    replica.record_follower_fetch(2, 1, 0, FakeFollowerBroker())
    assert replica.high_watermark == 0
    sync(replica)
    assert replica.high_watermark == 1
    produce(replica)
    sync(replica)
    replica.record_follower_fetch(3, 2, 0, FakeFollowerBroker())  # not in the ISR: does not count
    assert replica.high_watermark == 1


def test_commit_waiters_complete_when_proposed_isr_is_rejected() -> None:
    replica = leader()
    assert replica.isr_state is not None
    for follower in (2, 3):
        replica.record_follower_fetch(follower, 0, 0, FakeFollowerBroker())
    wanted = replica.isr_state.compute_next_isr(0, 0, 0.0, 10.0, lambda _: True)
    assert wanted is not None
    assert [member.broker_id for member in wanted] == [1, 2, 3]
    replica.isr_state.set_proposed_isr(wanted)
    produce(replica)
    sync(replica)
    outcomes: list[ErrorCode] = []
    replica.commit_waiters.add(1, outcomes.append)
    replica.record_follower_fetch(2, 1, 0, FakeFollowerBroker())
    assert outcomes == []  # the cluster may already consider broker 3 in sync
    replica.drop_rejected_isr()
    assert outcomes == [ErrorCode.NONE]


def test_end_of_leader_epoch_fails_all_waiters() -> None:
    replica = leader()
    produce(replica)
    outcomes: list[ErrorCode] = []
    replica.commit_waiters.add(1, outcomes.append)
    replica.durability_waiters.add(1, outcomes.append)
    replica.assume_role(Partition((1, 2, 3), (2, 3), leader=2, leader_epoch=1, partition_epoch=1), 1.0)
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    sync(replica)
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert replica.high_watermark == 0


def test_min_insync_replicas_is_checked_before_and_after_append() -> None:
    replica = leader(ProduceRules(max_message_bytes=1000, min_insync_replicas=2))
    assert replica.has_enough_replicas
    produce(replica)
    sync(replica)
    outcomes: list[ErrorCode] = []
    replica.commit_waiters.add(1, outcomes.append)
    replica.assume_role(Partition((1, 2, 3), (1,), leader=1, partition_epoch=1), 1.0)
    assert outcomes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    assert not replica.has_enough_replicas


def test_delayed_fetch_is_woken_by_readable_records() -> None:
    async def scenario() -> None:
        replica = leader()
        for _ in range(3):
            produce(replica)
        sync(replica)
        for readable in (1, 2, 3):
            looked = asyncio.Event()
            DelayedFetch([replica], 1, 60, looked.set, EarlyCompletion(lambda: False))
            replica.record_follower_fetch(2, readable, 0, FakeFollowerBroker())
            await asyncio.wait_for(looked.wait(), 10)

    asyncio.run(scenario())


def test_delayed_fetch_with_min_bytes_waits_for_enough_bytes() -> None:
    async def scenario() -> None:
        replica = leader()
        produce(replica)
        size = replica.log.size
        produce(replica)
        sync(replica)
        looked = asyncio.Event()
        DelayedFetch([replica], size + 1, 60, looked.set, EarlyCompletion(lambda: False))
        replica.record_follower_fetch(2, 1, 0, FakeFollowerBroker())
        assert replica.delayed_fetches
        replica.record_follower_fetch(2, 2, 0, FakeFollowerBroker())
        assert not replica.delayed_fetches
        await asyncio.wait_for(looked.wait(), 10)

    asyncio.run(scenario())


def test_retried_batch_completes_when_committed() -> None:
    """Not when batches that were sent between the two are committed."""
    replica = leader()
    told: list[int] = []
    produce(replica)
    produce(replica)
    sync(replica)
    for offset in (1, 2, 1):
        replica.commit_waiters.add(offset, lambda _, offset=offset: told.append(offset))  # type: ignore[misc]
    replica.record_follower_fetch(2, 1, 0, FakeFollowerBroker())
    assert told == [1, 1]


def test_retried_batch_completes_when_durable() -> None:
    replica = leader()
    told: list[int] = []
    produce(replica)
    ticket = replica.syncer.begin_sync()
    assert ticket is not None
    produce(replica)
    for offset in (1, 2, 1):
        replica.durability_waiters.add(offset, lambda _, offset=offset: told.append(offset))  # type: ignore[misc]
    ticket.run()
    replica.syncer.complete_sync(ticket)
    assert told == [1, 1]


# Transactions


def transactional(replica: Replica, producer_id: int) -> int:
    buffer = bytearray(
        encode_batch(
            [Record(0, -1, b"k", b"v")], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
        )
    )
    return replica.append(ValidatedRecords(buffer, validate_produced_batches(buffer))).base_offset


def test_leader_appends_marker_regardless_of_topic_configs() -> None:
    replica = leader(ProduceRules(max_message_bytes=1, is_compacted=True))
    produce(replica)
    assert replica.append_marker(7, 2, TransactionMarker(is_commit=True, coordinator_epoch=5), 1000) == 2
    (header,) = [header for _, header in iter_batches(replica.log.read(1, 1000, 2))]
    assert (header.is_control, header.is_transactional, header.max_timestamp) == (True, True, 1000)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, -1)
    assert parse_transaction_marker_batch(replica.log.read(1, 1000, 2)) == TransactionMarker(
        is_commit=True, coordinator_epoch=5
    )


def test_follower_rejects_markers() -> None:
    replica = leader()
    replica.assume_role(Partition(replicas=(1, 2, 3), isr=(1, 2), leader=2, leader_epoch=1), 0.0)
    with pytest.raises(KafkaError) as refused:
        replica.append_marker(7, 2, TransactionMarker(is_commit=True, coordinator_epoch=5), 1000)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert replica.log.log_end_offset == 0


def test_last_stable_offset_advances_with_high_watermark() -> None:
    replica = leader()
    produce(replica)
    first = transactional(replica, 1)
    end = replica.append_marker(1, 0, TransactionMarker(is_commit=False, coordinator_epoch=0), 0)
    sync(replica)
    told = []
    for offset in range(end + 1):
        replica.record_follower_fetch(2, offset, 0, FakeFollowerBroker())
        told.append((replica.high_watermark, replica.last_stable_offset))
    assert first == 1
    assert told == [(0, 0), (1, 1), (2, 1), (3, 3)]
    assert [each[:2] for each in replica.log.find_aborted_transactions(replica.log.read(0, 1000, end), 0)] == [
        (1, first)
    ]


def test_uncommitted_tail_of_former_leader_is_not_committed() -> None:
    replica = leader()
    produce(replica)
    sync(replica)
    replica.record_follower_fetch(2, 1, 0, FakeFollowerBroker())
    produce(replica)
    sync(replica)
    assert (replica.high_watermark, replica.log.log_end_offset) == (1, 2)
    replica.assume_role(ELSEWHERE, 1.0)
    replica.high_watermark = 2  # recorded for another batch at offset 1, as in the image after a restart
    assert replica.committed_end_offset == 1
    replica.update_from_leader(1, 0)
    assert replica.committed_end_offset == 1


def test_follower_updates_committed_end_only_from_leader() -> None:
    replica = leader()
    produce(replica)
    sync(replica)
    replica.assume_role(ELSEWHERE, 1.0)
    assert replica.committed_end_offset == 0
    replica.update_from_leader(9, 0)
    assert replica.committed_end_offset == 1  # not beyond its log end offset
