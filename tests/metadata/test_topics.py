"""Commands of topics and configs, and the memory usage of topics in the image."""

from __future__ import annotations

import gc
import tracemalloc
from sys import getsizeof

import pytest

from chronik.limits import TOPIC_NAME_CHARACTERS_MAX, TOPIC_PARTITIONS_MAX
from chronik.metadata.apply import apply
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerConfig, UpdateBrokerStatus
from chronik.metadata.commands.envelope import Envelope, decode_command, encode_command
from chronik.metadata.commands.groups import CommitOffset, OffsetToCommit
from chronik.metadata.commands.topics import (
    NO_LEADER,
    TOPICS_PER_COMMAND_MAX,
    CreatePartitions,
    CreateTopic,
    CreateTopics,
    DeleteTopic,
    PartitionAssignment,
    UpdateTopicConfig,
)
from chronik.metadata.handlers.configs import CONFIG_CHARACTERS_MAX, CONFIG_KEYS_MAX
from chronik.metadata.image import Image
from chronik.metadata.records import Partition
from chronik.metadata.snapshot import decode_snapshot
from chronik.protocol.errors import ErrorCode
from tests.run_size import sized

from .metadata_world import NODE, NODE_INCARNATION, MetadataWorld, build_assignment, build_id, encode_verified_snapshot

TOPICS = sized(2_000, 10_000)
TOPIC_BYTES_MAX = 500
"""10,000 topics take at most 5 MB besides their partitions."""


def creation(
    name: str,
    number: int = 1,
    partitions: tuple[PartitionAssignment, ...] = (build_assignment(1),),
    configs: dict[str, str] | None = None,
) -> CreateTopic:
    return CreateTopic(build_id(number), name, partitions, configs or {}, 1234)


def test_create_topic_stores_partitions_leaders_and_configs() -> None:
    world = MetadataWorld(1, 2, 3)
    world.accept(creation("orders", 7, (build_assignment(1, 2, 3), build_assignment(2, 3, 1)), {"b": "2", "a": "1"}))
    topic = world.image.topics["orders"]
    assert world.image.topics_by_id[build_id(7)] is topic
    assert topic.partitions == (Partition((1, 2, 3), (1, 2, 3), 1), Partition((2, 3, 1), (2, 3, 1), 2))
    assert list(topic.configs.items()) == [("a", "1"), ("b", "2")]
    assert (topic.created_ms, topic.internal, topic.replication_factor) == (1234, False, 3)
    (change,) = world.delta.topics
    assert change.created
    assert change.new is topic


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "käse", "a/b", "a\n", "x" * (TOPIC_NAME_CHARACTERS_MAX + 1)])
def test_invalid_topic_name_is_rejected(name: str) -> None:
    code, _ = MetadataWorld(1).reject(creation(name))
    assert code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_longest_topic_name_of_kafka_is_accepted() -> None:
    MetadataWorld(1).accept(creation("x" * TOPIC_NAME_CHARACTERS_MAX))


def test_creating_existing_topic_is_rejected() -> None:
    world = MetadataWorld(1)
    world.create("orders")
    assert world.reject(creation("orders"))[0] is ErrorCode.TOPIC_ALREADY_EXISTS


def test_topic_names_that_differ_only_in_dot_and_underscore_collide() -> None:
    world = MetadataWorld(1)
    topic = world.create("a.b_c")
    code, message = world.reject(creation("a_b.c"))
    assert code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "a.b_c" in message
    world.accept(DeleteTopic(topic.id))
    world.accept(creation("a_b.c"))


def test_topic_id_must_be_unique_and_not_zero() -> None:
    world = MetadataWorld(1)
    world.create("orders", number=5)
    assert world.reject(creation("other", 5))[0] is ErrorCode.INVALID_REQUEST
    assert world.reject(creation("other", 0))[0] is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("partitions", "code"),
    [
        ((), ErrorCode.INVALID_PARTITIONS),
        ((build_assignment(1),) * (TOPIC_PARTITIONS_MAX + 1), ErrorCode.INVALID_PARTITIONS),
        ((PartitionAssignment((), (), NO_LEADER),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((build_assignment(1, 2), build_assignment(1)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((build_assignment(1, 1),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((build_assignment(9),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((build_assignment(1, isr=(2,), leader=2),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((build_assignment(1, 2, isr=(1, 1)),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((build_assignment(1, 2, isr=(1,), leader=2),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((build_assignment(1, leader=NO_LEADER),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((build_assignment(3),), ErrorCode.BROKER_NOT_AVAILABLE),
    ],
)
def test_invalid_partition_assignment_is_rejected(partitions: tuple[PartitionAssignment, ...], code: ErrorCode) -> None:
    world = MetadataWorld(1, 2, 3)
    world.accept(UpdateBrokerStatus(3, BrokerStatus.OFFLINE))
    assert world.reject(creation("orders", partitions=partitions))[0] is code


def test_partition_limit_of_topic_is_enforced() -> None:
    world = MetadataWorld(1)
    world.accept(creation("orders", partitions=(build_assignment(1),) * TOPIC_PARTITIONS_MAX))
    code, _ = world.reject(CreatePartitions(build_id(1), TOPIC_PARTITIONS_MAX, (build_assignment(1),)))
    assert code is ErrorCode.INVALID_PARTITIONS


def test_topics_of_a_command_succeed_or_fail_separately() -> None:
    world = MetadataWorld(1)
    result = world.accept(CreateTopics((creation("a", 1), creation("a", 2), creation("b.c", 3), creation("b_c", 4))))
    assert [(failure.item, failure.code) for failure in result.failures] == [
        (1, ErrorCode.TOPIC_ALREADY_EXISTS),
        (3, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    assert sorted(world.image.topics) == ["a", "b.c"]
    assert [change.new.name for change in world.delta.topics if change.new] == ["a", "b.c"]


def test_three_thousand_topics_need_three_commands() -> None:
    world = MetadataWorld(1)
    size = TOPICS_PER_COMMAND_MAX
    for first in range(0, 3000, size):
        numbers = range(first, first + size)
        result = world.accept(CreateTopics(tuple(creation(f"topic-{n}", n + 1) for n in numbers)))
        assert not result.failures
    assert len(world.image.topics) == 3000
    encode_verified_snapshot(world.image)
    too_many = CreateTopics(tuple(creation(f"more-{n}", n + 9999) for n in range(size + 1)))
    assert world.reject(too_many)[0] is ErrorCode.INVALID_REQUEST


def test_deleting_topic_deletes_committed_offsets() -> None:
    world = MetadataWorld(1)
    orders = world.create("orders", build_assignment(1), build_assignment(1))
    world.create("other")
    for group in ("g1", "g2"):
        offsets = tuple(OffsetToCommit(topic, part, 5) for topic, part in (("orders", 0), ("orders", 1), ("other", 0)))
        world.accept(CommitOffset(group, offsets, 1))
    world.accept(DeleteTopic(orders.id))
    assert "orders" not in world.image.topics
    assert orders.id not in world.image.topics_by_id
    assert [list(world.image.offsets(group)) for group in ("g1", "g2")] == [[("other", 0)], [("other", 0)]]
    assert world.delta.offsets == ("g1", "g2")
    assert [change.old for change in world.delta.topics if change.deleted] == [orders]
    world.create("orders")
    assert ("orders", 0) not in world.image.offsets("g1")


def test_commands_for_deleted_topic_are_rejected() -> None:
    world = MetadataWorld(1)
    gone = build_id(77)
    for command in (DeleteTopic(gone), UpdateTopicConfig(gone, {"a": "1"}), CreatePartitions(gone, 1, ())):
        assert world.reject(command)[0] is ErrorCode.UNKNOWN_TOPIC_ID


def test_topic_configs_can_be_set_deleted_and_replaced() -> None:
    world = MetadataWorld(1)
    topic = world.create("orders")
    world.accept(UpdateTopicConfig(topic.id, {"z": "1", "a": "2"}))
    assert list(world.image.topics["orders"].configs.items()) == [("a", "2"), ("z", "1")]
    world.accept(UpdateTopicConfig(topic.id, {"b": "3"}, ("z", "unknown")))
    assert world.image.topics["orders"].configs == {"a": "2", "b": "3"}
    (change,) = world.delta.topics
    assert change.old is not None
    assert change.old.configs == {"a": "2", "z": "1"}
    world.accept(UpdateTopicConfig(topic.id, {"c": "4"}, replace=True))
    assert world.image.topics["orders"].configs == {"c": "4"}
    world.accept(UpdateTopicConfig(topic.id, {"c": "4"}))
    assert not world.delta


def test_size_of_topic_configs_is_limited() -> None:
    world = MetadataWorld(1)
    topic = world.create("orders")
    world.accept(UpdateTopicConfig(topic.id, {f"{n}": "" for n in range(CONFIG_KEYS_MAX)}, replace=True))
    too_many = {f"{n}": "" for n in range(CONFIG_KEYS_MAX + 1)}
    assert world.reject(UpdateTopicConfig(topic.id, too_many, replace=True))[0] is ErrorCode.INVALID_CONFIG
    world.accept(UpdateTopicConfig(topic.id, {"k": "v" * (CONFIG_CHARACTERS_MAX - 1)}, replace=True))
    too_long = {"k": "v" * CONFIG_CHARACTERS_MAX}
    assert world.reject(UpdateTopicConfig(topic.id, too_long, replace=True))[0] is ErrorCode.INVALID_CONFIG


def test_broker_configs_can_be_set_before_registration() -> None:
    world = MetadataWorld()
    world.accept(UpdateBrokerConfig(5, {"a": "1"}))
    world.accept(UpdateBrokerConfig(-1, {"b": "2"}))
    assert world.delta.broker_configs == (-1,)
    assert world.image.broker_configs == {5: {"a": "1"}, -1: {"b": "2"}}
    world.accept(UpdateBrokerConfig(5, delete=("a",)))
    assert 5 not in world.image.broker_configs


def test_create_partitions_is_rejected_if_count_has_changed() -> None:
    world = MetadataWorld(1, 2)
    topic = world.create("orders", build_assignment(1, 2))
    world.accept(CreatePartitions(topic.id, 1, (build_assignment(2, 1),)))
    assert [partition.leader for partition in world.image.topics["orders"].partitions] == [1, 2]
    again = CreatePartitions(topic.id, 1, (build_assignment(2, 1),))
    assert world.reject(again)[0] is ErrorCode.INVALID_PARTITIONS
    none = CreatePartitions(topic.id, 2, ())
    assert world.reject(none)[0] is ErrorCode.INVALID_PARTITIONS
    other_factor = CreatePartitions(topic.id, 2, (build_assignment(1),))
    assert world.reject(other_factor)[0] is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def creations(first_sequence: int) -> list[bytes]:
    topics = [
        CreateTopic(
            build_id(number + 1), f"topic-with-20-{number:06d}", (build_assignment(1, 2, 3),), {}, 1_700_000_000_000
        )
        for number in range(TOPICS)
    ]
    commands = [CreateTopics(tuple(topics[first : first + 100])) for first in range(0, TOPICS, 100)]
    return [
        encode_command(Envelope(NODE, NODE_INCARNATION, sequence, sequence - 1, command))
        for sequence, command in enumerate(commands, first_sequence)
    ]


def partition_bytes(image: Image) -> int:
    """Return the size of the partition objects."""
    partitions = {id(each): each for topic in image.topics.values() for each in topic.partitions}.values()
    members = {id(each): each for partition in partitions for each in (partition.replicas, partition.isr)}.values()
    tuples = (topic.partitions for topic in image.topics.values())
    return sum(map(getsizeof, (*partitions, *members, *tuples)))


def assert_small(image: Image) -> None:
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(image.topics) == TOPICS
    each = (used - partition_bytes(image)) / TOPICS
    assert each <= TOPIC_BYTES_MAX, f"{each:.0f} bytes per topic"


@pytest.mark.slow
def test_created_topics_take_at_most_500_bytes_each() -> None:
    world = MetadataWorld(1, 2, 3)
    encoded = creations(len(world.envelopes) + 1)
    gc.collect()
    tracemalloc.start()
    try:
        for each in encoded:
            apply(world.image, decode_command(each), world.image.applied_index + 1)
        assert_small(world.image)
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_loaded_topics_take_at_most_500_bytes_each() -> None:
    world = MetadataWorld(1, 2, 3)
    for each in creations(len(world.envelopes) + 1):
        apply(world.image, decode_command(each), world.image.applied_index + 1)
    chunks = encode_verified_snapshot(world.image)
    del world
    gc.collect()
    tracemalloc.start()
    try:
        assert_small(decode_snapshot(chunks))
    finally:
        tracemalloc.stop()
