"""The cost of broker status changes depends on the replicas that the broker hosts, not on the size of the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from chronik.controller.partition_maintenance import find_leaderless_partitions
from chronik.metadata import elections
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.partitions import Reassignment, ReassignPartitions
from chronik.metadata.commands.topics import DeleteTopic
from chronik.metadata.handlers import brokers as handlers
from chronik.metadata.records import Broker, Partition
from tests.metadata.metadata_world import MetadataWorld, build_assignment

TOPICS = 20


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the partitions that each election rule examines."""
    counts: Counter[str] = Counter()

    def counted(name: str) -> Any:
        react = getattr(elections, name)

        def counting_reaction(partition: Partition, broker_id: int, brokers: Mapping[int, Broker]) -> Partition:
            counts[name] += 1
            changed: Partition = react(partition, broker_id, brokers)
            return changed

        return counting_reaction

    for name in ("after_restart", "after_disk_loss"):
        monkeypatch.setattr(elections, name, counted(name))
    fencing, returning = counted("after_fencing"), counted("after_return")
    monkeypatch.setitem(handlers._REACTIONS, BrokerStatus.OFFLINE, fencing)
    monkeypatch.setitem(handlers._REACTIONS, BrokerStatus.ONLINE, returning)
    return counts


def populated_world() -> MetadataWorld:
    world = MetadataWorld(1, 2, 3)
    for number in range(TOPICS):
        world.create(f"many-{number}", build_assignment(1, 2), build_assignment(2, 1))
    world.create("one", build_assignment(3, 1))
    return world


def test_registration_of_new_broker_examines_no_partitions(examined: Counter[str]) -> None:
    world = populated_world()
    examined.clear()
    world.register(4)
    world.accept(UpdateBrokerStatus(4, BrokerStatus.OFFLINE))
    world.accept(UpdateBrokerStatus(4, BrokerStatus.ONLINE))
    world.register(4, incarnation_number=1)
    assert not examined


def test_status_change_examines_only_topics_of_the_broker(examined: Counter[str]) -> None:
    world = populated_world()
    examined.clear()
    world.accept(UpdateBrokerStatus(3, BrokerStatus.OFFLINE))
    world.accept(UpdateBrokerStatus(3, BrokerStatus.ONLINE))
    world.register(3, incarnation_number=1)
    assert examined == {"after_fencing": 1, "after_return": 1, "after_restart": 1}
    assert world.partition("one").leader == 1
    world.accept(UpdateBrokerStatus(1, BrokerStatus.OFFLINE))
    assert examined["after_fencing"] == 1 + 2 * TOPICS + 1


def test_reassigned_replicas_are_counted_for_their_new_broker(examined: Counter[str]) -> None:
    world = populated_world()
    world.register(4)
    moved = world.image.topics["one"]
    world.accept(ReassignPartitions((Reassignment(moved.id, 0, (4, 1)),)))
    examined.clear()
    world.accept(UpdateBrokerStatus(4, BrokerStatus.OFFLINE))
    assert examined == {"after_fencing": 1}
    world.accept(DeleteTopic(moved.id))
    world.accept(UpdateBrokerStatus(4, BrokerStatus.ONLINE))
    assert examined == {"after_fencing": 1}


def test_leaderless_topics_are_found_in_large_cluster() -> None:
    world = populated_world()
    assert world.image.leaderless_topics() == []
    for broker in (1, 3):
        world.accept(UpdateBrokerStatus(broker, BrokerStatus.OFFLINE))
    assert [topic.name for topic in world.image.leaderless_topics()] == ["one"]
    assert [str(each) for each in find_leaderless_partitions(world.image)] == ["one-0"]
    world.accept(UpdateBrokerStatus(3, BrokerStatus.ONLINE))
    assert world.image.leaderless_topics() == []


def test_replica_count_of_each_broker_is_tracked() -> None:
    world = populated_world()
    assert [world.image.replica_count(broker) for broker in (1, 2, 3, 4)] == [2 * TOPICS + 1, 2 * TOPICS, 1, 0]
