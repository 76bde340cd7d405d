"""What a broker's coming and going takes of every node grows with what that broker holds, not with the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from chronik.controller.leaderless import leaderless_partitions
from chronik.metadata import elections
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.partitions import Reassignment, ReassignPartitions
from chronik.metadata.commands.topics import DeleteTopic
from chronik.metadata.handlers import brokers as handlers
from chronik.metadata.records import Broker, Partition
from tests.metadata.world import World, assignment

TOPICS = 20


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many partitions were looked at, by why."""
    counts: Counter[str] = Counter()

    def counted(name: str) -> Any:
        react = getattr(elections, name)

        def react_counted(partition: Partition, broker_id: int, brokers: Mapping[int, Broker]) -> Partition:
            counts[name] += 1
            changed: Partition = react(partition, broker_id, brokers)
            return changed

        return react_counted

    for name in ("after_restart", "after_disk_loss"):
        monkeypatch.setattr(elections, name, counted(name))
    fencing, returning = counted("after_fencing"), counted("after_return")
    monkeypatch.setitem(handlers._REACTIONS, BrokerStatus.OFFLINE, fencing)
    monkeypatch.setitem(handlers._REACTIONS, BrokerStatus.ONLINE, returning)
    return counts


def filled() -> World:
    world = World(1, 2, 3)
    for number in range(TOPICS):
        world.create(f"many-{number}", assignment(1, 2), assignment(2, 1))
    world.create("one", assignment(3, 1))
    return world


def test_a_new_broker_has_no_partition_looked_at(looked_at: Counter[str]) -> None:
    world = filled()
    looked_at.clear()
    world.register(4)
    world.accept(UpdateBrokerStatus(4, BrokerStatus.OFFLINE))
    world.accept(UpdateBrokerStatus(4, BrokerStatus.ONLINE))
    world.register(4, life=1)
    assert not looked_at


def test_a_broker_that_goes_and_comes_has_its_own_topics_looked_at(looked_at: Counter[str]) -> None:
    world = filled()
    looked_at.clear()
    world.accept(UpdateBrokerStatus(3, BrokerStatus.OFFLINE))
    world.accept(UpdateBrokerStatus(3, BrokerStatus.ONLINE))
    world.register(3, life=1)
    assert looked_at == {"after_fencing": 1, "after_return": 1, "after_restart": 1}
    assert world.partition("one").leader == 1
    world.accept(UpdateBrokerStatus(1, BrokerStatus.OFFLINE))
    assert looked_at["after_fencing"] == 1 + 2 * TOPICS + 1


def test_what_has_moved_to_a_broker_is_its_own(looked_at: Counter[str]) -> None:
    world = filled()
    world.register(4)
    moved = world.image.topics["one"]
    world.accept(ReassignPartitions((Reassignment(moved.id, 0, (4, 1)),)))
    looked_at.clear()
    world.accept(UpdateBrokerStatus(4, BrokerStatus.OFFLINE))
    assert looked_at == {"after_fencing": 1}
    world.accept(DeleteTopic(moved.id))
    world.accept(UpdateBrokerStatus(4, BrokerStatus.ONLINE))
    assert looked_at == {"after_fencing": 1}


def test_partitions_without_a_leader_are_found_among_many_that_have_one() -> None:
    world = filled()
    assert world.image.leaderless_topics() == []
    for broker in (1, 3):
        world.accept(UpdateBrokerStatus(broker, BrokerStatus.OFFLINE))
    assert [topic.name for topic in world.image.leaderless_topics()] == ["one"]
    assert [str(each) for each in leaderless_partitions(world.image)] == ["one-0"]
    world.accept(UpdateBrokerStatus(3, BrokerStatus.ONLINE))
    assert world.image.leaderless_topics() == []


def test_what_each_holds_is_counted() -> None:
    world = filled()
    assert [world.image.replica_count(broker) for broker in (1, 2, 3, 4)] == [2 * TOPICS + 1, 2 * TOPICS, 1, 0]
