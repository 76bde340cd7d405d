"""Creation of topics: many topics in several commands, placement by broker status, and replanning after a fencing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.admin.topic_planner import NewTopicRequest, TopicPlanner
from chronik.admin.topics import PARTITIONS_PER_PROPOSAL, REPLANS_MAX, NewPartitions, TopicAdmin
from chronik.clock import SystemClock
from chronik.configs.resolver import ConfigResolver
from chronik.ids import generate_id
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
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


def replica_brokers(world: MetadataWorld, factor: int) -> set[int]:
    store = cast(Any, SimpleNamespace(image=world.image, subscribe=lambda subscriber: None))
    planner = TopicPlanner(store, ConfigResolver(store, 1, {}), SystemClock(), generate_id, lambda below: 0)
    planning = planner.plan_topics([NewTopicRequest("t", 12, factor)])
    while True:
        try:
            next(planning)
        except StopIteration as planned:
            (command,) = planned.value
            break
    assert isinstance(command, CreateTopic), command
    return {replica for partition in command.partitions for replica in partition.replicas}


def test_new_partitions_prefer_online_over_offline_over_drained_brokers() -> None:
    world = MetadataWorld(1, 2, 3, 4)
    world.accept(UpdateBrokerStatus(3, BrokerStatus.OFFLINE))
    world.accept(UpdateBrokerStatus(4, BrokerStatus.MAINTENANCE))
    assert replica_brokers(world, 2) == {1, 2}
    assert replica_brokers(world, 3) == {1, 2, 3}
    assert replica_brokers(world, 4) == {1, 2, 3, 4}


class FencingStore:
    """A fake store that fences one more broker before each of the first commands."""

    def __init__(self, *fenced: int) -> None:
        self._world = MetadataWorld(1, 2, 3, 4, 5)
        self._fenced_next = list(fenced)

    @property
    def image(self) -> Image:
        return self._world.image

    async def read_barrier(self) -> None: ...

    async def propose(self, command: Command) -> ApplyResult:
        if self._fenced_next:
            self._world.accept(UpdateBrokerStatus(self._fenced_next.pop(0), BrokerStatus.OFFLINE))
        result = self._world.apply(command)
        if result.code is not ErrorCode.NONE:
            raise KafkaError(result.code, result.message)
        return result


def admin(*fenced: int) -> tuple[TopicAdmin, Image]:
    store = cast(MetadataStore, FencingStore(*fenced))
    return topic_admin(store), store.image


@pytest.mark.parametrize("fenced", [(), (1,), (1, 2)])
def test_topic_is_created_on_remaining_brokers_after_fencing(fenced: tuple[int, ...]) -> None:
    topics, image = admin(*fenced)
    requests = [NewTopicRequest("wide", 4, 5), NewTopicRequest("narrow", 6, 1)]
    outcomes = asyncio.run(topics.create(requests))
    assert all(isinstance(outcome, CreateTopic) for outcome in outcomes), outcomes
    for name in ("wide", "narrow"):
        for partition in image.topics[name].partitions:
            assert partition.leader not in fenced
            assert not set(partition.isr) & set(fenced)


def test_partitions_are_added_on_remaining_brokers_after_fencing() -> None:
    topics, image = admin()
    asyncio.run(topics.create([NewTopicRequest("grown", 1, 5)]))
    cast(FencingStore, topics._store)._fenced_next = [1]
    asyncio.run(topics.create_partitions(NewPartitions("grown", 6)))
    assert len(image.topics["grown"].partitions) == 6
    assert all(1 not in partition.isr for partition in image.topics["grown"].partitions)


def test_topic_creation_fails_after_maximum_replans() -> None:
    topics, _ = admin(*range(1, REPLANS_MAX + 2))
    (outcome,) = asyncio.run(topics.create([NewTopicRequest("unlucky", 4, 5)]))
    assert isinstance(outcome, KafkaError)
    assert outcome.code is ErrorCode.BROKER_NOT_AVAILABLE
