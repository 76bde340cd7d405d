"""Creation of many topics, split into several commands that each block the event loop only briefly."""

from __future__ import annotations

import asyncio
from typing import cast

from chronik.admin.topic_planner import NewTopicRequest
from chronik.admin.topics import PARTITIONS_PER_PROPOSAL
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.topics import CreateTopic, CreateTopics
from chronik.metadata.image import Image
from chronik.metadata.records import ApplyResult
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.admin.factories import topic_admin
from tests.metadata.metadata_world import MetadataWorld


class CountingStore:
    """A fake store that counts the partitions of each command and rejects the commands with the given numbers."""

    def __init__(self, *refused: int) -> None:
        self._world = MetadataWorld(1)
        self._refused = refused
        self.partitions: list[int] = []

    @property
    def image(self) -> Image:
        return self._world.image

    async def read_barrier(self) -> None: ...

    async def propose(self, command: Command) -> ApplyResult:
        assert isinstance(command, CreateTopics)
        self.partitions.append(sum(len(topic.partitions) for topic in command.topics))
        if len(self.partitions) in self._refused:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return self._world.accept(command)


def _create(counting_store: CountingStore, *partition_counts: int) -> list[CreateTopic | KafkaError]:
    topics = topic_admin(cast(MetadataStore, counting_store))
    requests = [NewTopicRequest(f"topic-{number}", count, 1) for number, count in enumerate(partition_counts)]
    return asyncio.run(topics.create(requests))


def test_create_topics_limits_partitions_per_command() -> None:
    counting_store = CountingStore()
    outcomes = _create(counting_store, *[1] * (2 * PARTITIONS_PER_PROPOSAL + 1))
    assert counting_store.partitions == [PARTITIONS_PER_PROPOSAL, PARTITIONS_PER_PROPOSAL, 1]
    assert len(outcomes) == 2 * PARTITIONS_PER_PROPOSAL + 1
    assert all(isinstance(outcome, CreateTopic) for outcome in outcomes)
    assert len(counting_store.image.topics) == len(outcomes)


def test_large_topic_is_created_by_a_single_command() -> None:
    counting_store = CountingStore()
    half = PARTITIONS_PER_PROPOSAL // 2
    _create(counting_store, half, half, 1, 3 * PARTITIONS_PER_PROPOSAL, 2)
    assert counting_store.partitions == [2 * half, 1, 3 * PARTITIONS_PER_PROPOSAL, 2]


def test_failed_command_affects_only_its_own_topics() -> None:
    outcomes = _create(CountingStore(2), *[PARTITIONS_PER_PROPOSAL] * 3)
    assert [isinstance(outcome, KafkaError) for outcome in outcomes] == [False, True, False]
