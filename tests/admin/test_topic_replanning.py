"""Topics are planned again if a broker is fenced between planning and application."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from chronik.admin.topic_planner import NewTopicRequest
from chronik.admin.topics import REPLANS_MAX, NewPartitions, TopicAdmin
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.topics import CreateTopic
from chronik.metadata.image import Image
from chronik.metadata.records import ApplyResult
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.admin.factories import topic_admin
from tests.metadata.metadata_world import MetadataWorld


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
