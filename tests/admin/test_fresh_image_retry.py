"""Requests are retried on a fresh image before they are rejected: the local image may be stale."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.admin.configs import ConfigAdmin, ConfigChange, ConfigResourceKey, ConfigResourceType
from chronik.admin.partitions import ReassignmentRequest, TopicPartitionName, elect_leaders, reassign_partitions
from chronik.admin.topic_planner import NewTopicRequest
from chronik.admin.topics import NewPartitions
from chronik.clock import SystemClock
from chronik.config import NodeConfig
from chronik.configs.resolver import ConfigResolver
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.topics import CreateTopic
from chronik.metadata.image import Image
from chronik.metadata.records import ApplyResult
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.admin.factories import topic_admin
from tests.metadata.metadata_world import MetadataWorld, build_assignment

NEW_TOPIC = "made-elsewhere"
RETENTION = [ConfigChange("retention.ms", "1000")]
RESOURCE = ConfigResourceKey(ConfigResourceType.TOPIC, NEW_TOPIC)
PARTITION = TopicPartitionName(NEW_TOPIC, 0)


class StaleStore:
    """A store whose image lacks a topic created through another node until `read_barrier` is called."""

    is_shared = True

    def __init__(self, *, has_quorum: bool = True) -> None:
        self._world = MetadataWorld(1)
        broker = self._world.image.brokers[1]
        self._world.accept(UpdateBrokerStatus(1, BrokerStatus.ONLINE, broker.epoch))
        self._has_quorum = has_quorum
        self.barriers = 0
        self.proposed: list[Command] = []

    @property
    def image(self) -> Image:
        return self._world.image

    async def read_barrier(self) -> None:
        self.barriers += 1
        if not self._has_quorum:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no quorum")
        if NEW_TOPIC not in self.image.topics:
            self._world.create(NEW_TOPIC, build_assignment(1), number=7)

    async def propose(self, command: Command) -> ApplyResult:
        self.proposed.append(command)
        return self._world.apply(command)

    @property
    def store(self) -> MetadataStore:
        return cast(MetadataStore, self)

    @property
    def configs(self) -> ConfigAdmin:
        config = cast(NodeConfig, SimpleNamespace(node_id=1))
        return ConfigAdmin(config, self.store, ConfigResolver(self.store, 1, {}), SystemClock())


async def delete_topic(stale: StaleStore) -> None:
    await topic_admin(stale.store).delete(NEW_TOPIC)


async def enlarge_topic(stale: StaleStore) -> None:
    await topic_admin(stale.store).create_partitions(NewPartitions(NEW_TOPIC, 2))


async def replace_configs(stale: StaleStore) -> None:
    await stale.configs.replace_configs(RESOURCE, RETENTION)


async def change_configs(stale: StaleStore) -> None:
    await stale.configs.alter(RESOURCE, RETENTION)


async def elect_leader(stale: StaleStore) -> object:
    (outcome,) = await elect_leaders(stale.store, [PARTITION], unclean=False)
    return None if outcome is None or outcome.code is ErrorCode.ELECTION_NOT_NEEDED else outcome


async def reassign_partition(stale: StaleStore) -> object:
    wanted = ReassignmentRequest(PARTITION, (1,))
    (outcome,) = await reassign_partitions(stale.store, [wanted], allow_replication_factor_change=True)
    return outcome


EVERY_CHANGE = pytest.mark.parametrize(
    "change", [delete_topic, enlarge_topic, replace_configs, change_configs, elect_leader, reassign_partition]
)
Attempt = Callable[[StaleStore], Awaitable[Any]]


@EVERY_CHANGE
def test_change_of_topic_created_elsewhere_succeeds_on_fresh_image(change: Attempt) -> None:
    stale = StaleStore()
    assert asyncio.run(cast(Any, change(stale))) is None
    assert (stale.barriers, len(stale.proposed)) == (1, 1)


@EVERY_CHANGE
def test_change_without_quorum_returns_not_controller(change: Attempt) -> None:
    stale = StaleStore(has_quorum=False)
    try:
        outcome = asyncio.run(cast(Any, change(stale)))
    except KafkaError as error:
        outcome = error
    assert outcome.code is ErrorCode.NOT_CONTROLLER
    assert not stale.proposed


def test_existing_topic_is_rejected_after_read_barrier() -> None:
    stale = StaleStore()
    topics = topic_admin(stale.store)
    (created,) = asyncio.run(topics.create([NewTopicRequest("another", 1, 1)]))
    assert isinstance(created, CreateTopic)
    assert stale.barriers == 0
    rejected, created = asyncio.run(topics.create([NewTopicRequest("another", 1, 1), NewTopicRequest("third", 1, 1)]))
    assert isinstance(rejected, KafkaError)
    assert rejected.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert isinstance(created, CreateTopic)
    assert stale.barriers == 1
