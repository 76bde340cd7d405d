"""The controller checks all partitions only if one may lack a leader, and not for every topic change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.configs.resolver import ConfigResolver
from chronik.controller import partition_maintenance
from chronik.controller.leaderless_partitions import LeaderlessPartition, find_leaderless_partitions
from chronik.controller.partition_maintenance import PartitionMaintenance
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.topics import DeleteTopic, UpdateTopicConfig
from chronik.metadata.delta import Delta
from chronik.metadata.image import Image
from chronik.metadata.stores.raft_store import RaftStore
from tests.metadata.metadata_world import MetadataWorld, build_assignment


class MaintenanceHarness:
    """Partition maintenance that receives every delta of a metadata world."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = MetadataWorld(1, 2)
        self.checks = 0
        self._subscribers: list[Callable[[Delta], None]] = []
        store = SimpleNamespace(image=self.world.image, subscribe=self._subscribers.append, propose=self._propose)
        clock = SimpleNamespace(monotonic=lambda: 0.0)
        configs = SimpleNamespace(broker_int=lambda name: 300, topic_value=lambda configs, name: "false")
        monkeypatch.setattr(partition_maintenance, find_leaderless_partitions.__name__, self._record_check)
        self._maintenance = PartitionMaintenance(
            cast(RaftStore, store), cast(ConfigResolver, configs), cast(Any, clock)
        )
        self.has_checked()

    async def _propose(self, *_: Any, **__: Any) -> None:
        raise AssertionError("no election is expected")

    def _record_check(self, image: Image) -> Iterator[LeaderlessPartition]:
        self.checks += 1
        return find_leaderless_partitions(image)

    def publish(self) -> None:
        (on_delta,) = self._subscribers
        on_delta(self.world.delta)

    def has_checked(self) -> bool:
        before = self.checks
        asyncio.run(self._maintenance.check())
        return self.checks > before


def test_topic_changes_do_not_trigger_partition_check(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = MaintenanceHarness(monkeypatch)
    topic = harness.world.create("orders", build_assignment(1, 2), build_assignment(2, 1))
    harness.publish()
    assert not harness.has_checked()
    harness.world.accept(UpdateTopicConfig(topic.id, {"retention.ms": "1000"}))
    harness.publish()
    assert not harness.has_checked()
    harness.world.accept(DeleteTopic(topic.id))
    harness.publish()
    assert not harness.has_checked()


def test_broker_change_triggers_partition_check(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = MaintenanceHarness(monkeypatch)
    harness.world.create("orders", build_assignment(1, 2))
    harness.world.accept(UpdateBrokerStatus(1, BrokerStatus.OFFLINE))
    harness.publish()
    assert harness.has_checked()
    assert not harness.has_checked(), "once"


def test_change_of_leaderless_topic_triggers_partition_check(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = MaintenanceHarness(monkeypatch)
    topic = harness.world.create("orders", build_assignment(1, 2), build_assignment(1, 2, isr=(), leader=-1))
    harness.publish()
    assert harness.has_checked()
    harness.world.accept(UpdateTopicConfig(topic.id, {"unclean.leader.election.enable": "true"}))
    harness.publish()
    assert harness.has_checked()
    harness.world.accept(DeleteTopic(topic.id))
    harness.publish()
    assert harness.has_checked(), "the partition would be reported again"
