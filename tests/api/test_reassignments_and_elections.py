"""AlterPartitionReassignments, ListPartitionReassignments and ElectLeaders."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from chronik.api import elect_leaders
from chronik.metadata.commands.partitions import ElectLeaders
from chronik.metadata.records import ApplyResult, ItemFailure
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from chronik.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from chronik.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tests.api import request_builders
from tests.metadata.metadata_world import MetadataWorld, build_assignment
from tests.raw import RawClient

NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REPLICA_ASSIGNMENT
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def reassign(client: RawClient, *wanted: tuple[str, int, list[int] | None], version: int = 1) -> list[ErrorCode]:
    topics = [
        ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)])
        for name, index, replicas in wanted
    ]
    request = AlterPartitionReassignmentsRequest(topics=topics)
    response = client.request(request, version, AlterPartitionReassignmentsResponse)
    assert response.error_code == NONE
    answers = [(topic.name, part.partition_index) for topic in response.responses for part in topic.partitions]
    assert answers == [(name, index) for name, index, _ in wanted]
    parts = [part for topic in response.responses for part in topic.partitions]
    assert all((part.error_message is None) == (part.error_code == NONE) for part in parts)
    return [ErrorCode(part.error_code) for part in parts]


def elect(
    client: RawClient, *wanted: TopicPartitions, kind: int = 0, version: int = 2
) -> dict[tuple[str, int], ErrorCode]:
    request = ElectLeadersRequest(election_type=kind, topic_partitions=list(wanted))
    response = client.request(request, version, ElectLeadersResponse)
    return {
        (topic.topic, each.partition_id): ErrorCode(each.error_code)
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


@pytest.mark.parametrize("version", [0, 1])
def test_reassignment_returns_error_code_for_each_partition(
    client: RawClient, chronik_topic: str, version: int
) -> None:
    wanted: list[tuple[str, int, list[int] | None]] = [
        (chronik_topic, 0, [1]),
        (chronik_topic, 0, None),
        (chronik_topic, 0, []),
        (chronik_topic, 0, [1, 1]),
        (chronik_topic, 0, [7]),
        (chronik_topic, 0, [-1]),
        (chronik_topic, -1, [1]),
        (chronik_topic, 1, [1]),
        ("nothing", 0, [1]),
    ]
    cancelled = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    expected = [NONE, cancelled, INVALID, INVALID, INVALID, INVALID, UNKNOWN, UNKNOWN, UNKNOWN]
    assert reassign(client, *wanted, version=version) == expected


def test_list_reassignments_is_empty_without_moves(client: RawClient, chronik_topic: str) -> None:
    named = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, -1, 9]) for name in (chronik_topic, "?")]
    for topics in (None, [], named):
        response = client.request(
            ListPartitionReassignmentsRequest(topics=topics), 0, ListPartitionReassignmentsResponse
        )
        assert (response.error_code, response.topics) == (NONE, [])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_election_on_single_broker_is_not_needed(client: RawClient, chronik_topic: str, version: int) -> None:
    wanted = TopicPartitions(topic=chronik_topic, partitions=[0, 0, -1, 5])
    expected = {
        (chronik_topic, 0): ErrorCode.ELECTION_NOT_NEEDED,
        (chronik_topic, -1): UNKNOWN,
        (chronik_topic, 5): UNKNOWN,
    }
    assert elect(client, wanted, version=version) == expected
    if version > 0:
        assert elect(client, wanted, kind=1, version=version) == expected


def test_unknown_election_type_is_rejected(client: RawClient, chronik_topic: str) -> None:
    request = ElectLeadersRequest(
        election_type=2, topic_partitions=[TopicPartitions(topic=chronik_topic, partitions=[0])]
    )
    response = client.request(request, 2, ElectLeadersResponse)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_replication_throttles_are_validated_configs(client: RawClient, chronik_topic: str) -> None:
    refused = ErrorCode.INVALID_CONFIG
    for side in ("leader", "follower"):
        replicas, rate = f"{side}.replication.throttled.replicas", f"{side}.replication.throttled.rate"
        for legal in ("*", "0:1", "0:1,1:2", ""):
            assert (
                request_builders.alter_configs(
                    client, request_builders.TOPIC, chronik_topic, (replicas, request_builders.SET, legal)
                )
                is NONE
            )
        for wrong in ("0", "a:b", "*,0:1", "0:-1"):
            assert (
                request_builders.alter_configs(
                    client, request_builders.TOPIC, chronik_topic, (replicas, request_builders.SET, wrong)
                )
                is refused
            )
        for broker in ("1", ""):
            assert (
                request_builders.alter_configs(
                    client, request_builders.BROKER, broker, (rate, request_builders.SET, "1000000")
                )
                is NONE
            )
            assert (
                request_builders.alter_configs(
                    client, request_builders.BROKER, broker, (rate, request_builders.SET, "-1")
                )
                is ErrorCode.INVALID_REQUEST
            )
            assert (
                request_builders.alter_configs(
                    client, request_builders.BROKER, broker, (rate, request_builders.DELETE, None)
                )
                is NONE
            )


class Store:
    """A store whose proposal finds that the first partition already has its preferred leader."""

    def __init__(self, world: MetadataWorld) -> None:
        self.image = world.image

    async def propose(self, command: ElectLeaders) -> ApplyResult:
        assert [key.partition for key in command.partitions] == [0, 1]
        return ApplyResult(failures=(ItemFailure(0, ErrorCode.ELECTION_NOT_NEEDED, "it leads already"),))


def elect_on_stale_node(topics: list[TopicPartitions] | None) -> dict[int, int]:
    world = MetadataWorld(1, 2, 3)
    world.create("orders", build_assignment(1, 2, isr=(2,), leader=2), build_assignment(1, 2, isr=(2,), leader=2))
    services: Any = SimpleNamespace(authorizer=None, store=Store(world), image=world.image)
    request = ElectLeadersRequest(election_type=0, topic_partitions=topics)
    response = asyncio.run(elect_leaders.handle(services, request, None))  # type: ignore[arg-type]
    assert isinstance(response, ElectLeadersResponse)
    found = {}
    for topic in response.replica_election_results:
        found.update({each.partition_id: each.error_code for each in topic.partition_result})
    return found


def test_election_of_all_partitions_omits_unneeded_elections() -> None:
    assert elect_on_stale_node(None) == {1: ErrorCode.NONE}


def test_election_of_named_partition_returns_election_not_needed() -> None:
    named = [TopicPartitions(topic="orders", partitions=[0, 1])]
    assert elect_on_stale_node(named) == {0: ErrorCode.ELECTION_NOT_NEEDED, 1: ErrorCode.NONE}
