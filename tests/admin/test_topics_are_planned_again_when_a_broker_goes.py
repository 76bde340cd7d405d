"""A broker that is fenced between the plan of a topic and its turn in the log is no reason to refuse the topic."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from chronik.admin.topic_plans import TopicRequest
from chronik.admin.topics import REPLANS_MAX, Enlargement, TopicAdmin
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.topics import CreateTopic
from chronik.metadata.image import Image
from chronik.metadata.records import Result
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.admin.making import topic_admin
from tests.metadata.world import World


class BrokersGo:
    """A store in which, before each of the first commands, one more broker goes away."""

    def __init__(self, *going: int) -> None:
        self._world = World(1, 2, 3, 4, 5)
        self._going = list(going)

    @property
    def image(self) -> Image:
        return self._world.image

    async def read_barrier(self) -> None: ...

    async def propose(self, command: Command) -> Result:
        if self._going:
            self._world.accept(UpdateBrokerStatus(self._going.pop(0), BrokerStatus.OFFLINE))
        result = self._world.do(command)
        if result.code is not ErrorCode.NONE:
            raise KafkaError(result.code, result.message)
        return result


def admin(*going: int) -> tuple[TopicAdmin, Image]:
    store = cast(MetadataStore, BrokersGo(*going))
    return topic_admin(store), store.image


@pytest.mark.parametrize("going", [(), (1,), (1, 2)])
def test_the_topic_is_made_of_those_that_are_left(going: tuple[int, ...]) -> None:
    topics, image = admin(*going)
    requests = [TopicRequest("wide", 4, 5), TopicRequest("narrow", 6, 1)]
    outcomes = asyncio.run(topics.create(requests))
    assert all(isinstance(outcome, CreateTopic) for outcome in outcomes), outcomes
    for name in ("wide", "narrow"):
        for partition in image.topics[name].partitions:
            assert partition.leader not in going
            assert not set(partition.isr) & set(going)


def test_partitions_are_added_on_those_that_are_left() -> None:
    topics, image = admin()
    asyncio.run(topics.create([TopicRequest("grown", 1, 5)]))
    cast(BrokersGo, topics._store)._going = [1]
    asyncio.run(topics.enlarge(Enlargement("grown", 6)))
    assert len(image.topics["grown"].partitions) == 6
    assert all(1 not in partition.isr for partition in image.topics["grown"].partitions)


def test_it_is_not_tried_for_ever() -> None:
    topics, _ = admin(*range(1, REPLANS_MAX + 2))
    (outcome,) = asyncio.run(topics.create([TopicRequest("unlucky", 4, 5)]))
    assert isinstance(outcome, KafkaError)
    assert outcome.code is ErrorCode.BROKER_NOT_AVAILABLE
