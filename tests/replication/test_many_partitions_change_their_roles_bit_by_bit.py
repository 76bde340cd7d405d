"""A broker that goes changes thousands of partitions by one command: the loop is left to others in between, and whoever
asks for a partition finds it as the image has it."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from chronik.broker.replica import Replica
from chronik.broker.replicas import CHANGES_PER_TURN
from chronik.metadata.commands.brokers import BrokerStatus, RegisterBroker, UpdateBrokerStatus
from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.metadata.commands.topics import CreateTopic, DeleteTopic, PartitionAssignment, UpdateTopicConfig

from .rig import FOLLOWER, LEADER, OTHER, Rig

TOPICS = 3 * CHANGES_PER_TURN + 7
REPLICAS = (FOLLOWER, LEADER, OTHER)


def topic_id(number: int) -> bytes:
    return (number + 1).to_bytes(16, "big")


def many_topics(count: int = TOPICS) -> Rig:
    """All led by the follower of the rig, until that goes."""
    rig = Rig()
    for number in range(count):
        rig.consensus.command(
            CreateTopic(topic_id(number), f"t{number}", (PartitionAssignment(REPLICAS, REPLICAS, FOLLOWER),), {}, 0)
        )
    return rig


def led(rig: Rig) -> list[Replica]:
    return [replica for replica in rig.replicas if replica.leads and replica.topic_name != "topic"]


async def as_the_image_has_it(rig: Rig) -> None:
    for _ in range(TOPICS // CHANGES_PER_TURN + 2):
        await asyncio.sleep(0)
    for replica in rig.replicas:
        partition = rig.store.image.topics_by_id[replica.topic_id].partitions[replica.index]
        assert (replica.leader, replica.leader_epoch) == (partition.leader, partition.leader_epoch)
        assert replica.leads is (partition.leader == LEADER)


def test_no_turn_of_the_loop_changes_more_than_a_few_hundred() -> None:
    async def story(rig: Rig) -> None:
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
        seen = [len(led(rig))]
        for _ in range(TOPICS // CHANGES_PER_TURN + 2):
            await asyncio.sleep(0)
            seen.append(len(led(rig)))
        assert seen[-1] == TOPICS
        assert max(after - before for before, after in pairwise([0, *seen])) == CHANGES_PER_TURN
        await as_the_image_has_it(rig)

    many_topics().run(story)


def test_a_few_change_at_once() -> None:
    async def story(rig: Rig) -> None:
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
        assert len(led(rig)) == CHANGES_PER_TURN - 1

    many_topics(CHANGES_PER_TURN - 1).run(story)  # and the rig's own topic


def test_whoever_asks_for_a_partition_finds_it_in_its_new_role() -> None:
    async def story(rig: Rig) -> None:
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
        last, at_once = TOPICS - 1, len(led(rig))
        assert rig.replicas.by_id(topic_id(last), 0).leads
        assert rig.replicas.by_name(f"t{last - 1}", 0).leads
        assert rig.replicas.led(topic_id(last - 2), 0) is not None
        assert len(led(rig)) == at_once + 3
        await as_the_image_has_it(rig)

    many_topics().run(story)


def test_a_role_that_changes_again_meanwhile_is_the_last_one() -> None:
    async def story(rig: Rig) -> None:
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
        for number in (5, TOPICS - 1):
            rig.command(SetPartitionLeader(topic_id(number), 0, OTHER, 1))
            replica = rig.replicas.get(f"t{number}", 0)
            assert replica is not None
            assert (replica.leads, replica.leader) == (False, OTHER)
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.ONLINE))
        rig.command(RegisterBroker(OTHER, "host", 9092, None, b"n" * 16, bytes([OTHER]) * 16))
        rig.command(UpdateBrokerStatus(OTHER, BrokerStatus.OFFLINE))
        await as_the_image_has_it(rig)

    many_topics().run(story)


def test_an_error_in_a_later_turn_is_heard_of() -> None:
    """The node stops, as it does when a role that changes at once goes wrong."""

    async def story(rig: Rig) -> None:
        replica = rig.replicas.get(f"t{TOPICS - 1}", 0)
        assert replica is not None
        broken = OSError("the disk is broken")

        def fail(changed: Replica) -> None:
            if changed is replica:
                raise broken

        rig.replicas.listeners.append(fail)
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
        for _ in range(TOPICS // CHANGES_PER_TURN + 2):
            await asyncio.sleep(0)
        assert rig.fatal == [broken]
        rig.fatal.clear()

    many_topics().run(story)


def test_a_topic_that_is_deleted_meanwhile_is_gone() -> None:
    async def story(rig: Rig) -> None:
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
        rig.command(DeleteTopic(topic_id(TOPICS - 1)))
        assert rig.replicas.get(f"t{TOPICS - 1}", 0) is None
        assert len(rig.replicas) == TOPICS
        await as_the_image_has_it(rig)

    many_topics().run(story)


LARGE = 16 * b"\xaa"


def create_large() -> CreateTopic:
    assignment = PartitionAssignment(REPLICAS, REPLICAS, LEADER)
    return CreateTopic(LARGE, "large", (assignment,) * TOPICS, {}, 0)


def test_a_topic_of_many_partitions_comes_bit_by_bit_and_what_is_asked_for_is_there() -> None:
    async def story(rig: Rig) -> None:
        rig.command(create_large())
        here = len(rig.replicas)
        assert here <= CHANGES_PER_TURN + 1
        assert rig.replicas.by_name("large", TOPICS - 1).leads
        assert rig.replicas.by_id(LARGE, TOPICS - 2).leads
        assert len(rig.replicas) == here + 2
        await as_the_image_has_it(rig)
        assert len(rig.replicas) == TOPICS + 1

    Rig().run(story)


def test_a_topic_of_many_partitions_that_is_deleted_meanwhile_is_gone() -> None:
    async def story(rig: Rig) -> None:
        rig.command(create_large())
        rig.command(DeleteTopic(LARGE))
        assert rig.replicas.get("large", 0) is None
        await as_the_image_has_it(rig)
        assert len(rig.replicas) == 1

    Rig().run(story)


def test_configs_that_change_meanwhile_hold_for_all_partitions() -> None:
    async def story(rig: Rig) -> None:
        rig.command(create_large())
        rig.command(UpdateTopicConfig(LARGE, {"max.message.bytes": "2000"}))
        assert rig.replicas.by_name("large", TOPICS - 1).rules.max_message_bytes == 2000
        await as_the_image_has_it(rig)
        assert {each.rules.max_message_bytes for each in rig.replicas if each.topic_id == LARGE} == {2000}

    Rig().run(story)
