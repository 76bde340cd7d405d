"""A request for many topics becomes several commands, each of which costs every node a short turn of its loop."""

from __future__ import annotations

import asyncio
from typing import cast

from chronik.admin.topic_plans import TopicRequest
from chronik.admin.topics import PARTITIONS_PER_PROPOSAL
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.topics import CreateTopic, CreateTopics
from chronik.metadata.image import Image
from chronik.metadata.records import Result
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.admin.making import topic_admin
from tests.metadata.world import World


class Commands:
    """A store that counts the partitions of each command, and refuses the commands of some numbers."""

    def __init__(self, *refused: int) -> None:
        self._world = World(1)
        self._refused = refused
        self.partitions: list[int] = []

    @property
    def image(self) -> Image:
        return self._world.image

    async def read_barrier(self) -> None: ...

    async def propose(self, command: Command) -> Result:
        assert isinstance(command, CreateTopics)
        self.partitions.append(sum(len(topic.partitions) for topic in command.topics))
        if len(self.partitions) in self._refused:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return self._world.accept(command)


def _create(commands: Commands, *partition_counts: int) -> list[CreateTopic | KafkaError]:
    topics = topic_admin(cast(MetadataStore, commands))
    requests = [TopicRequest(f"topic-{number}", count, 1) for number, count in enumerate(partition_counts)]
    return asyncio.run(topics.create(requests))


def test_no_command_makes_more_partitions_than_a_turn_of_the_loop_has_time_for() -> None:
    commands = Commands()
    outcomes = _create(commands, *[1] * (2 * PARTITIONS_PER_PROPOSAL + 1))
    assert commands.partitions == [PARTITIONS_PER_PROPOSAL, PARTITIONS_PER_PROPOSAL, 1]
    assert len(outcomes) == 2 * PARTITIONS_PER_PROPOSAL + 1
    assert all(isinstance(outcome, CreateTopic) for outcome in outcomes)
    assert len(commands.image.topics) == len(outcomes)


def test_partitions_count_and_a_large_topic_is_made_whole() -> None:
    commands = Commands()
    half = PARTITIONS_PER_PROPOSAL // 2
    _create(commands, half, half, 1, 3 * PARTITIONS_PER_PROPOSAL, 2)
    assert commands.partitions == [2 * half, 1, 3 * PARTITIONS_PER_PROPOSAL, 2]


def test_each_topic_is_told_what_became_of_its_own_command() -> None:
    outcomes = _create(Commands(2), *[PARTITIONS_PER_PROPOSAL] * 3)
    assert [isinstance(outcome, KafkaError) for outcome in outcomes] == [False, True, False]
