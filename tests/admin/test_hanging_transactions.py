"""Aborting of hanging transactions, which no coordinator knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from chronik.admin.hanging_transactions import abort_hanging_transaction
from chronik.admin.partitions import TopicPartitionName
from chronik.broker.replica import Replica
from chronik.broker.requests.produced_records import validate_produced_records
from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.metadata.commands.topics import CreateTopic, PartitionAssignment
from chronik.metadata.commands.transactions import (
    NO_RECORD_INDEX,
    AddToTransaction,
    InitTransaction,
    TransactionPartition,
)
from chronik.protocol.control_records import TransactionMarker, parse_transaction_marker_batch
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.records import Record, encode_batch
from tests.replication.rig import FOLLOWER, LEADER, TOPIC_ID, Rig

ALONE = b"a" * 16
PRODUCER, EPOCH = 7, 2
NOW_MS = 1_000


def run_scenario(scenario: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario with a topic `alone` of two single-replica partitions, where records are committed immediately."""

    async def with_topic(rig: Rig) -> None:
        rig.command(CreateTopic(ALONE, "alone", (PartitionAssignment((LEADER,), (LEADER,), LEADER),) * 2, {}, 0))
        await scenario(rig)

    Rig().run(with_topic)


def append_transactional(replica: Replica, sequence: int = 0) -> None:
    records = [Record(0, 0, None, b"of a transaction")]
    batch = encode_batch(
        records, producer_id=PRODUCER, producer_epoch=EPOCH, base_sequence=sequence, transactional=True
    )
    replica.append(validate_produced_records(memoryview(bytearray(batch)), replica.produce_rules, 13, 0))


async def abort(rig: Rig, *, topic: str = "alone", index: int = 0, epoch: int = EPOCH, coordinator: int = 0) -> None:
    partition = TopicPartitionName(topic, index)
    await abort_hanging_transaction(rig.store, rig.replicas, partition, PRODUCER, epoch, coordinator, NOW_MS)


def add_to_coordinated_transaction(rig: Rig, index: int) -> None:
    rig.command(InitTransaction("t", NO_RECORD_INDEX, PRODUCER, EPOCH, 60_000, 0))
    seen = rig.store.image.transactions["t"].index
    rig.command(AddToTransaction("t", seen, (TransactionPartition(ALONE, index),), (), 0))


def test_abort_of_hanging_transaction_writes_committed_marker() -> None:
    async def scenario(rig: Rig) -> None:
        replica = rig.replicas.get_leader_by_id(ALONE, 0)
        append_transactional(replica)
        assert replica.last_stable_offset == 0
        await abort(rig)
        assert not replica.log.producers.transactions.open
        assert (replica.log.log_end_offset, replica.high_watermark, replica.last_stable_offset) == (2, 2, 2)
        marker = replica.read(1, 1_000, min_one_batch=True)
        assert parse_transaction_marker_batch(marker) == TransactionMarker(is_commit=False, coordinator_epoch=0)

    run_scenario(scenario)


def test_abort_without_open_transaction_writes_nothing() -> None:
    async def scenario(rig: Rig) -> None:
        await abort(rig)
        append_transactional(rig.replicas.get_leader_by_id(ALONE, 0))
        await abort(rig)
        await abort(rig)  # a retry, as after a lost response
        assert rig.replicas.get_leader_by_id(ALONE, 0).log.log_end_offset == 2

    run_scenario(scenario)


def test_abort_is_rejected_if_coordinator_knows_the_transaction() -> None:
    async def scenario(rig: Rig) -> None:
        append_transactional(rig.replicas.get_leader_by_id(ALONE, 0))
        append_transactional(rig.replicas.get_leader_by_id(ALONE, 1))
        add_to_coordinated_transaction(rig, 0)
        with pytest.raises(KafkaError) as error:
            await abort(rig, index=0)
        assert error.value.code is ErrorCode.INVALID_TXN_STATE
        assert rig.replicas.get_leader_by_id(ALONE, 0).log.log_end_offset == 1
        await abort(rig, index=1)  # not part of the transaction
        assert rig.replicas.get_leader_by_id(ALONE, 1).log.log_end_offset == 2

    run_scenario(scenario)


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1, 32_767])
def test_abort_with_wrong_producer_epoch_is_rejected(epoch: int) -> None:
    async def scenario(rig: Rig) -> None:
        append_transactional(rig.replicas.get_leader_by_id(ALONE, 0))
        with pytest.raises(KafkaError) as error:
            await abort(rig, epoch=epoch)
        assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH

    run_scenario(scenario)


def test_abort_with_older_coordinator_epoch_is_fenced() -> None:
    async def scenario(rig: Rig) -> None:
        replica = rig.replicas.get_leader_by_id(ALONE, 0)
        append_transactional(replica)
        replica.append_marker(PRODUCER, EPOCH, TransactionMarker(True, 5), NOW_MS)
        append_transactional(replica, sequence=1)
        with pytest.raises(KafkaError) as error:
            await abort(rig, coordinator=4)
        assert error.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        await abort(rig, coordinator=1_000_000)
        marker = replica.read(3, 1_000, min_one_batch=True)
        assert parse_transaction_marker_batch(marker) == TransactionMarker(is_commit=False, coordinator_epoch=5)

    run_scenario(scenario)


def test_abort_waits_until_isr_has_the_marker() -> None:
    async def scenario(rig: Rig) -> None:
        append_transactional(rig.replica())
        waiting = asyncio.ensure_future(abort(rig, topic="topic"))
        await asyncio.sleep(1)
        assert not waiting.done(), "the followers do not have the marker"
        rig.command(SetPartitionLeader(TOPIC_ID, 0, FOLLOWER))
        with pytest.raises(KafkaError) as error:
            await waiting
        assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run_scenario(scenario)


def test_abort_is_rejected_by_broker_that_is_not_leader() -> None:
    async def scenario(rig: Rig) -> None:
        with pytest.raises(KafkaError) as error:
            await abort(rig, topic="unknown")
        assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        rig.command(SetPartitionLeader(TOPIC_ID, 0, FOLLOWER))
        with pytest.raises(KafkaError) as error:
            await abort(rig, topic="topic")
        assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run_scenario(scenario)
