"""Another node may have answered what this one has not applied yet: "no such topic" is said only by a fresh image."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.admin.configs import Change, ConfigAdmin, Resource, ResourceType
from chronik.admin.partitions import NamedPartition, WantedReplicas, elect, reassign
from chronik.admin.topic_plans import TopicRequest
from chronik.admin.topics import Enlargement
from chronik.clock import SystemClock
from chronik.config import NodeConfig
from chronik.configs.resolver import ConfigResolver
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.topics import CreateTopic
from chronik.metadata.image import Image
from chronik.metadata.records import Result
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.admin.making import topic_admin
from tests.metadata.world import World, assignment

NEW = "made-elsewhere"
RETENTION = [Change("retention.ms", "1000")]
RESOURCE = Resource(ResourceType.TOPIC, NEW)
PARTITION = NamedPartition(NEW, 0)


class Behind:
    """Its image lacks a topic that was made through another node, until it is told to look again."""

    is_shared = True

    def __init__(self, *, has_quorum: bool = True) -> None:
        self._world = World(1)
        broker = self._world.image.brokers[1]
        self._world.accept(UpdateBrokerStatus(1, BrokerStatus.ONLINE, broker.epoch))
        self._has_quorum = has_quorum
        self.looks = 0
        self.proposed: list[Command] = []

    @property
    def image(self) -> Image:
        return self._world.image

    async def read_barrier(self) -> None:
        self.looks += 1
        if not self._has_quorum:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no quorum")
        if NEW not in self.image.topics:
            self._world.create(NEW, assignment(1), number=7)

    async def propose(self, command: Command) -> Result:
        self.proposed.append(command)
        return self._world.do(command)

    @property
    def store(self) -> MetadataStore:
        return cast(MetadataStore, self)

    @property
    def configs(self) -> ConfigAdmin:
        config = cast(NodeConfig, SimpleNamespace(node_id=1))
        return ConfigAdmin(config, self.store, ConfigResolver(self.store, 1, {}), SystemClock())


async def deleted(behind: Behind) -> None:
    await topic_admin(behind.store).delete(NEW)


async def enlarged(behind: Behind) -> None:
    await topic_admin(behind.store).enlarge(Enlargement(NEW, 2))


async def replaced(behind: Behind) -> None:
    await behind.configs.replace_all(RESOURCE, RETENTION)


async def changed(behind: Behind) -> None:
    await behind.configs.change(RESOURCE, RETENTION)


async def elected(behind: Behind) -> object:
    (outcome,) = await elect(behind.store, [PARTITION], unclean=False)
    return None if outcome is None or outcome.code is ErrorCode.ELECTION_NOT_NEEDED else outcome


async def reassigned(behind: Behind) -> object:
    wanted = WantedReplicas(PARTITION, (1,))
    (outcome,) = await reassign(behind.store, [wanted], allow_replication_factor_change=True)
    return outcome


EVERY_CHANGE = pytest.mark.parametrize("change", [deleted, enlarged, replaced, changed, elected, reassigned])
Attempt = Callable[[Behind], Awaitable[Any]]


@EVERY_CHANGE
def test_what_was_made_elsewhere_is_found_after_a_second_look(change: Attempt) -> None:
    behind = Behind()
    assert asyncio.run(cast(Any, change(behind))) is None
    assert (behind.looks, len(behind.proposed)) == (1, 1)


@EVERY_CHANGE
def test_without_a_quorum_it_is_not_said_that_there_is_no_such_topic(change: Attempt) -> None:
    behind = Behind(has_quorum=False)
    try:
        outcome = asyncio.run(cast(Any, change(behind)))
    except KafkaError as error:
        outcome = error
    assert outcome.code is ErrorCode.NOT_CONTROLLER
    assert not behind.proposed


def test_a_topic_that_is_there_already_is_refused_by_a_fresh_image_and_the_others_are_made() -> None:
    behind = Behind()
    topics = topic_admin(behind.store)
    (made,) = asyncio.run(topics.create([TopicRequest("another", 1, 1)]))
    assert isinstance(made, CreateTopic)
    assert behind.looks == 0
    refused, made = asyncio.run(topics.create([TopicRequest("another", 1, 1), TopicRequest("third", 1, 1)]))
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert isinstance(made, CreateTopic)
    assert behind.looks == 1
