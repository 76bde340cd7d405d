"""What is open in a partition while no coordinator knows of it is aborted when somebody asks; anything else is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from chronik.admin.hanging import abort_hanging
from chronik.admin.partitions import NamedPartition
from chronik.broker.replica import Replica
from chronik.broker.requests.incoming import accept_produced
from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.metadata.commands.topics import CreateTopic, PartitionAssignment
from chronik.metadata.commands.transactions import NOT_SEEN, AddToTransaction, InitTransaction, TransactionPartition
from chronik.protocol.control_records import TransactionMarker, marker_within
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.records import Record, encode_batch
from tests.replication.rig import FOLLOWER, LEADER, TOPIC_ID, Rig

ALONE = b"a" * 16
PRODUCER, EPOCH = 7, 2
NOW_MS = 1_000


def told(story: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
    """The topic `alone` has two partitions with one replica, so that what is written is committed by itself."""

    async def beginning(rig: Rig) -> None:
        rig.command(CreateTopic(ALONE, "alone", (PartitionAssignment((LEADER,), (LEADER,), LEADER),) * 2, {}, 0))
        await story(rig)

    Rig().run(beginning)


def open_in(replica: Replica, sequence: int = 0) -> None:
    records = [Record(0, 0, None, b"of a transaction")]
    batch = encode_batch(
        records, producer_id=PRODUCER, producer_epoch=EPOCH, base_sequence=sequence, transactional=True
    )
    replica.append(accept_produced(memoryview(bytearray(batch)), replica.rules, 13, 0))


async def abort(rig: Rig, *, topic: str = "alone", index: int = 0, epoch: int = EPOCH, coordinator: int = 0) -> None:
    partition = NamedPartition(topic, index)
    await abort_hanging(rig.store, rig.replicas, partition, PRODUCER, epoch, coordinator, NOW_MS)


def known_to_a_coordinator(rig: Rig, index: int) -> None:
    rig.command(InitTransaction("t", NOT_SEEN, PRODUCER, EPOCH, 60_000, 0))
    seen = rig.store.image.transactions["t"].index
    rig.command(AddToTransaction("t", seen, (TransactionPartition(ALONE, index),), (), 0))


def test_it_is_ended_by_a_marker_that_is_committed() -> None:
    async def story(rig: Rig) -> None:
        replica = rig.replicas.by_id(ALONE, 0)
        open_in(replica)
        assert replica.last_stable_offset == 0
        await abort(rig)
        assert not replica.log.producers.transactions.open
        assert (replica.log.log_end_offset, replica.high_watermark, replica.last_stable_offset) == (2, 2, 2)
        marker = replica.read(1, 1_000, min_one_batch=True)
        assert marker_within(marker) == TransactionMarker(committed=False, coordinator_epoch=0)

    told(story)


def test_where_nothing_is_open_nothing_is_written() -> None:
    async def story(rig: Rig) -> None:
        await abort(rig)
        open_in(rig.replicas.by_id(ALONE, 0))
        await abort(rig)
        await abort(rig)  # as a client does whose first answer was lost
        assert rig.replicas.by_id(ALONE, 0).log.log_end_offset == 2

    told(story)


def test_what_a_coordinator_knows_as_open_is_left_to_it() -> None:
    async def story(rig: Rig) -> None:
        open_in(rig.replicas.by_id(ALONE, 0))
        open_in(rig.replicas.by_id(ALONE, 1))
        known_to_a_coordinator(rig, 0)
        with pytest.raises(KafkaError) as refused:
            await abort(rig, index=0)
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
        assert rig.replicas.by_id(ALONE, 0).log.log_end_offset == 1
        await abort(rig, index=1)  # which is not part of it
        assert rig.replicas.by_id(ALONE, 1).log.log_end_offset == 2

    told(story)


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1, 32_767])
def test_whoever_names_another_epoch_has_not_looked(epoch: int) -> None:
    async def story(rig: Rig) -> None:
        open_in(rig.replicas.by_id(ALONE, 0))
        with pytest.raises(KafkaError) as refused:
            await abort(rig, epoch=epoch)
        assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH

    told(story)


def test_neither_is_an_earlier_coordinator_believed_nor_a_later_one_fenced() -> None:
    async def story(rig: Rig) -> None:
        replica = rig.replicas.by_id(ALONE, 0)
        open_in(replica)
        replica.append_marker(PRODUCER, EPOCH, TransactionMarker(True, 5), NOW_MS)
        open_in(replica, sequence=1)
        with pytest.raises(KafkaError) as refused:
            await abort(rig, coordinator=4)
        assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        await abort(rig, coordinator=1_000_000)
        marker = replica.read(3, 1_000, min_one_batch=True)
        assert marker_within(marker) == TransactionMarker(committed=False, coordinator_epoch=5)

    told(story)


def test_it_is_said_to_be_ended_when_every_replica_in_sync_has_the_marker() -> None:
    async def story(rig: Rig) -> None:
        open_in(rig.replica())
        waiting = asyncio.ensure_future(abort(rig, topic="topic"))
        await asyncio.sleep(1)
        assert not waiting.done(), "the followers have nothing"
        rig.command(SetPartitionLeader(TOPIC_ID, 0, FOLLOWER))
        with pytest.raises(KafkaError) as refused:
            await waiting
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    told(story)


def test_it_is_asked_of_the_partitions_leader() -> None:
    async def story(rig: Rig) -> None:
        with pytest.raises(KafkaError) as refused:
            await abort(rig, topic="unknown")
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        rig.command(SetPartitionLeader(TOPIC_ID, 0, FOLLOWER))
        with pytest.raises(KafkaError) as refused:
            await abort(rig, topic="topic")
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    told(story)
