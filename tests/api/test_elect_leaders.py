"""ElectLeaders of all partitions on a node whose image is stale."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from chronik.api import elect_leaders
from chronik.metadata.commands.partitions import ElectLeaders
from chronik.metadata.records import ApplyResult, ItemFailure
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tests.metadata.metadata_world import MetadataWorld, build_assignment


class Store:
    """A store whose proposal finds that the first partition already has its preferred leader."""

    def __init__(self, world: MetadataWorld) -> None:
        self.image = world.image

    async def propose(self, command: ElectLeaders) -> ApplyResult:
        assert [key.partition for key in command.partitions] == [0, 1]
        return ApplyResult(failures=(ItemFailure(0, ErrorCode.ELECTION_NOT_NEEDED, "it leads already"),))


def elect(topics: list[TopicPartitions] | None) -> dict[int, int]:
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
    assert elect(None) == {1: ErrorCode.NONE}


def test_election_of_named_partition_returns_election_not_needed() -> None:
    named = [TopicPartitions(topic="orders", partitions=[0, 1])]
    assert elect(named) == {0: ErrorCode.ELECTION_NOT_NEEDED, 1: ErrorCode.NONE}
