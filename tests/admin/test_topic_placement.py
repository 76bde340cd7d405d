"""Placement of new partitions by broker status: online, then offline, then drained brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from chronik.admin.topic_planner import NewTopicRequest, TopicPlanner
from chronik.clock import SystemClock
from chronik.configs.resolver import ConfigResolver
from chronik.ids import new_id
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.topics import CreateTopic
from tests.metadata.metadata_world import MetadataWorld


def replica_brokers(world: MetadataWorld, factor: int) -> set[int]:
    store = cast(Any, SimpleNamespace(image=world.image, subscribe=lambda subscriber: None))
    planner = TopicPlanner(store, ConfigResolver(store, 1, {}), SystemClock(), new_id, lambda below: 0)
    planning = planner.plan_all([NewTopicRequest("t", 12, factor)])
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
