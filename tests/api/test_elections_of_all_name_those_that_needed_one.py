"""ElectLeaders of all partitions, asked of a node that is behind: others have got their leaders meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from chronik.api import elect_leaders
from chronik.metadata.commands.partitions import ElectLeaders
from chronik.metadata.records import Failure, Result
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tests.metadata.world import World, assignment


class Store:
    """The leader's image has what this node's lacks: the first partition has its leader again."""

    def __init__(self, world: World) -> None:
        self.image = world.image

    async def propose(self, command: ElectLeaders) -> Result:
        assert [key.partition for key in command.partitions] == [0, 1]
        return Result(failures=(Failure(0, ErrorCode.ELECTION_NOT_NEEDED, "it leads already"),))


def elect(topics: list[TopicPartitions] | None) -> dict[int, int]:
    world = World(1, 2, 3)
    world.create("orders", assignment(1, 2, isr=(2,), leader=2), assignment(1, 2, isr=(2,), leader=2))
    services: Any = SimpleNamespace(authorizer=None, store=Store(world), image=world.image)
    request = ElectLeadersRequest(election_type=0, topic_partitions=topics)
    response = asyncio.run(elect_leaders.handle(services, request, None))  # type: ignore[arg-type]
    assert isinstance(response, ElectLeadersResponse)
    found = {}
    for topic in response.replica_election_results:
        found.update({each.partition_id: each.error_code for each in topic.partition_result})
    return found


def test_who_asks_for_all_is_told_of_those_that_needed_one() -> None:
    assert elect(None) == {1: ErrorCode.NONE}


def test_who_asks_for_one_is_told_that_it_needed_none() -> None:
    named = [TopicPartitions(topic="orders", partitions=[0, 1])]
    assert elect(named) == {0: ErrorCode.ELECTION_NOT_NEEDED, 1: ErrorCode.NONE}
