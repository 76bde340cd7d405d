"""DescribeProducers: producer states of a partition, with the start offsets of open transactions."""

from __future__ import annotations

import pytest

from chronik.api import describe_producers
from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    PartitionResponse,
    ProducerState,
)
from tests.api.leader_node import Leader, run_scenario
from tests.replication.rig import FOLLOWER, TOPIC_ID


async def described(leader: Leader, *indexes: int, topic: str = "topic") -> list[PartitionResponse]:
    request = DescribeProducersRequest(topics=[DescribeProducersTopic(name=topic, partition_indexes=list(indexes))])
    (answer,) = (await leader.send_request(request, 0, DescribeProducersResponse)).topics
    assert answer.name == topic
    return answer.partitions


async def write(leader: Leader) -> None:
    leader.produce(1, b"a", b"b", timestamp=1000)
    leader.end_transaction(1, commit=True)
    leader.produce(2, b"c", timestamp=2000)
    leader.end_transaction(3, commit=False, epoch=7)
    leader.produce(1, b"d", timestamp=3000)
    await leader.commit_all()


EXPECTED = [
    (1, 0, 2, 3000, 3, 5),
    (2, 0, 0, 2000, -1, 3),
    (3, 7, -1, 0, 3, -1),
]
"""Producer id, epoch, last sequence, last timestamp, coordinator epoch and start offset of the open transaction."""


def fields(state: ProducerState) -> tuple[int, ...]:
    return (
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        state.current_txn_start_offset,
    )


def test_describe_producers_returns_epoch_sequence_and_transaction() -> None:
    async def scenario(leader: Leader) -> None:
        await write(leader)
        (partition,) = await described(leader, 0)
        assert (partition.error_code, partition.error_message) == (ErrorCode.NONE, None)
        found = sorted(partition.active_producers, key=lambda each: each.producer_id)
        assert found[2].last_timestamp > 0  # the time at which the marker was appended
        found[2].last_timestamp = 0
        assert [fields(each) for each in found] == EXPECTED

    run_scenario(scenario)


def test_followers_describe_producers() -> None:
    async def scenario(leader: Leader) -> None:
        await write(leader)
        leader.rig.command(SetPartitionLeader(TOPIC_ID, 0, FOLLOWER, 0))
        (partition,) = await described(leader, 0)
        assert [each.producer_id for each in partition.active_producers] == [2, 3, 1]

    run_scenario(scenario)


def test_describe_producers_handles_unknown_and_duplicate_partitions() -> None:
    async def scenario(leader: Leader) -> None:
        first, second = await described(leader, 0, 4, 0)
        assert (first.partition_index, first.error_code, first.active_producers) == (0, ErrorCode.NONE, [])
        assert (second.partition_index, second.error_code) == (4, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        (unknown,) = await described(leader, 0, topic="unknown")
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run_scenario(scenario)


def test_describe_producers_response_size_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(leader: Leader) -> None:
        await write(leader)
        monkeypatch.setattr(describe_producers, "RESPONSE_PRODUCERS_MAX", 3)
        assert len((await described(leader, 0))[0].active_producers) == 3
        monkeypatch.setattr(describe_producers, "RESPONSE_PRODUCERS_MAX", 2)
        (partition,) = await described(leader, 0)
        assert (partition.error_code, partition.active_producers) == (ErrorCode.INVALID_REQUEST, [])

    run_scenario(scenario)
