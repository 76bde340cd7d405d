"""Role changes of thousands of partitions by one command are applied incrementally, and lookups see the new roles."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from chronik.broker.replica import Replica
from chronik.broker.replica_manager import CHANGES_PER_ITERATION
from chronik.metadata.commands.brokers import BrokerStatus, RegisterBroker, UpdateBrokerStatus
from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.metadata.commands.topics import CreateTopic, DeleteTopic, PartitionAssignment, UpdateTopicConfig
from tests.replication.rig import FOLLOWER, LEADER, OTHER, Rig

TOPICS = 3 * CHANGES_PER_ITERATION + 7
REPLICAS = (FOLLOWER, LEADER, OTHER)


def topic_id(number: int) -> bytes:
    return (number + 1).to_bytes(16, "big")


def many_topics(count: int = TOPICS) -> Rig:
    """Create topics that the rig's follower leads until it is fenced."""
    rig = Rig()
    for number in range(count):
        rig.consensus.command(
            CreateTopic(topic_id(number), f"t{number}", (PartitionAssignment(REPLICAS, REPLICAS, FOLLOWER),), {}, 0)
        )
    return rig


def led_replicas(rig: Rig) -> list[Replica]:
    return [replica for replica in rig.replicas if replica.is_leader and replica.topic_name != "topic"]


async def wait_until_roles_match_image(rig: Rig) -> None:
    for _ in range(TOPICS // CHANGES_PER_ITERATION + 2):
        await asyncio.sleep(0)
    for replica in rig.replicas:
        partition = rig.store.image.topics_by_id[replica.topic_id].partitions[replica.index]
        assert (replica.leader, replica.leader_epoch) == (partition.leader, partition.leader_epoch)
        assert replica.is_leader is (partition.leader == LEADER)


def test_role_changes_per_event_loop_iteration_are_limited() -> None:
    async def scenario(rig: Rig) -> None:
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
        seen = [len(led_replicas(rig))]
        for _ in range(TOPICS // CHANGES_PER_ITERATION + 2):
            await asyncio.sleep(0)
            seen.append(len(led_replicas(rig)))
        assert seen[-1] == TOPICS
        assert max(after - before for before, after in pairwise([0, *seen])) == CHANGES_PER_ITERATION
        await wait_until_roles_match_image(rig)

    many_topics().run(scenario)


def test_few_role_changes_are_applied_immediately() -> None:
    async def scenario(rig: Rig) -> None:
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
        assert len(led_replicas(rig)) == CHANGES_PER_ITERATION - 1

    many_topics(CHANGES_PER_ITERATION - 1).run(scenario)  # in addition to the rig's own topic


def test_lookup_applies_pending_role_change() -> None:
    async def scenario(rig: Rig) -> None:
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
        last, at_once = TOPICS - 1, len(led_replicas(rig))
        assert rig.replicas.get_leader_by_id(topic_id(last), 0).is_leader
        assert rig.replicas.get_leader(f"t{last - 1}", 0).is_leader
        assert rig.replicas.find_led_replica(topic_id(last - 2), 0) is not None
        assert len(led_replicas(rig)) == at_once + 3
        await wait_until_roles_match_image(rig)

    many_topics().run(scenario)


def test_last_of_several_pending_role_changes_wins() -> None:
    async def scenario(rig: Rig) -> None:
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
        for number in (5, TOPICS - 1):
            rig.command(SetPartitionLeader(topic_id(number), 0, OTHER, 1))
            replica = rig.replicas.find(f"t{number}", 0)
            assert replica is not None
            assert (replica.is_leader, replica.leader) == (False, OTHER)
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.ONLINE))
        rig.command(RegisterBroker(OTHER, "host", 9092, None, b"n" * 16, bytes([OTHER]) * 16))
        rig.command(UpdateBrokerStatus(OTHER, BrokerStatus.OFFLINE))
        await wait_until_roles_match_image(rig)

    many_topics().run(scenario)


def test_error_in_deferred_role_change_is_reported() -> None:
    """The node stops, as for an error in an immediate role change."""

    async def scenario(rig: Rig) -> None:
        replica = rig.replicas.find(f"t{TOPICS - 1}", 0)
        assert replica is not None
        broken = OSError("the disk is broken")

        def fail(changed: Replica) -> None:
            if changed is replica:
                raise broken

        rig.replicas.listeners.append(fail)
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
        for _ in range(TOPICS // CHANGES_PER_ITERATION + 2):
            await asyncio.sleep(0)
        assert rig.fatal == [broken]
        rig.fatal.clear()

    many_topics().run(scenario)


def test_topic_deleted_during_role_changes_is_removed() -> None:
    async def scenario(rig: Rig) -> None:
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
        rig.command(DeleteTopic(topic_id(TOPICS - 1)))
        assert rig.replicas.find(f"t{TOPICS - 1}", 0) is None
        assert len(rig.replicas) == TOPICS
        await wait_until_roles_match_image(rig)

    many_topics().run(scenario)


LARGE = 16 * b"\xaa"


def create_large() -> CreateTopic:
    assignment = PartitionAssignment(REPLICAS, REPLICAS, LEADER)
    return CreateTopic(LARGE, "large", (assignment,) * TOPICS, {}, 0)


def test_large_topic_is_created_incrementally() -> None:
    async def scenario(rig: Rig) -> None:
        rig.command(create_large())
        here = len(rig.replicas)
        assert here <= CHANGES_PER_ITERATION + 1
        assert rig.replicas.get_leader("large", TOPICS - 1).is_leader
        assert rig.replicas.get_leader_by_id(LARGE, TOPICS - 2).is_leader
        assert len(rig.replicas) == here + 2
        await wait_until_roles_match_image(rig)
        assert len(rig.replicas) == TOPICS + 1

    Rig().run(scenario)


def test_large_topic_deleted_during_creation_is_removed() -> None:
    async def scenario(rig: Rig) -> None:
        rig.command(create_large())
        rig.command(DeleteTopic(LARGE))
        assert rig.replicas.find("large", 0) is None
        await wait_until_roles_match_image(rig)
        assert len(rig.replicas) == 1

    Rig().run(scenario)


def test_config_change_during_creation_applies_to_all_partitions() -> None:
    async def scenario(rig: Rig) -> None:
        rig.command(create_large())
        rig.command(UpdateTopicConfig(LARGE, {"max.message.bytes": "2000"}))
        assert rig.replicas.get_leader("large", TOPICS - 1).produce_rules.max_message_bytes == 2000
        await wait_until_roles_match_image(rig)
        assert {each.produce_rules.max_message_bytes for each in rig.replicas if each.topic_id == LARGE} == {2000}

    Rig().run(scenario)
