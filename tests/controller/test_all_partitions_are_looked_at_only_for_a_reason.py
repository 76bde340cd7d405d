"""The controller goes through all partitions when one may lack a leader, and not for every topic that changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.configs.resolver import ConfigResolver
from chronik.controller import upkeep
from chronik.controller.leaderless import Leaderless, leaderless_partitions
from chronik.controller.upkeep import PartitionUpkeep
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.topics import DeleteTopic, UpdateTopicConfig
from chronik.metadata.delta import Delta
from chronik.metadata.image import Image
from chronik.metadata.stores.raft_store import RaftStore
from tests.metadata.world import World, assignment


class Watched:
    """A controller's upkeep, told of every delta of a world."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World(1, 2)
        self.looks = 0
        self._told: list[Callable[[Delta], None]] = []
        store = SimpleNamespace(image=self.world.image, subscribe=self._told.append, propose=self._propose)
        clock = SimpleNamespace(monotonic=lambda: 0.0)
        configs = SimpleNamespace(broker_int=lambda name: 300, topic=lambda configs, name: "false")
        monkeypatch.setattr(upkeep, "leaderless_partitions", self._look)
        self._upkeep = PartitionUpkeep(cast(RaftStore, store), cast(ConfigResolver, configs), cast(Any, clock))
        self.looked()

    async def _propose(self, *_: Any, **__: Any) -> None:
        raise AssertionError("nobody is to be elected")

    def _look(self, image: Image) -> Iterator[Leaderless]:
        self.looks += 1
        return leaderless_partitions(image)

    def tell(self) -> None:
        (follow,) = self._told
        follow(self.world.delta)

    def looked(self) -> bool:
        before = self.looks
        asyncio.run(self._upkeep.look())
        return self.looks > before


def test_topics_that_are_made_configured_and_deleted_are_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    topic = watched.world.create("orders", assignment(1, 2), assignment(2, 1))
    watched.tell()
    assert not watched.looked()
    watched.world.accept(UpdateTopicConfig(topic.id, {"retention.ms": "1000"}))
    watched.tell()
    assert not watched.looked()
    watched.world.accept(DeleteTopic(topic.id))
    watched.tell()
    assert not watched.looked()


def test_a_broker_that_goes_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    watched.world.create("orders", assignment(1, 2))
    watched.world.accept(UpdateBrokerStatus(1, BrokerStatus.OFFLINE))
    watched.tell()
    assert watched.looked()
    assert not watched.looked(), "once"


def test_a_change_of_a_topic_that_lacks_a_leader_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    topic = watched.world.create("orders", assignment(1, 2), assignment(1, 2, isr=(), leader=-1))
    watched.tell()
    assert watched.looked()
    watched.world.accept(UpdateTopicConfig(topic.id, {"unclean.leader.election.enable": "true"}))
    watched.tell()
    assert watched.looked()
    watched.world.accept(DeleteTopic(topic.id))
    watched.tell()
    assert watched.looked(), "it is told of again, should it come to that again"
