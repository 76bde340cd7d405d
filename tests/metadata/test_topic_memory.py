"""Memory usage of topics in the image, excluding their partitions."""

from __future__ import annotations

import gc
import tracemalloc
from sys import getsizeof

import pytest

from chronik.metadata.apply import apply
from chronik.metadata.commands.envelope import Envelope, decode_command, encode_command
from chronik.metadata.commands.topics import CreateTopic, CreateTopics
from chronik.metadata.image import Image
from chronik.metadata.snapshot import decode_snapshot
from tests.run_size import sized

from .metadata_world import NODE, NODE_INCARNATION, MetadataWorld, build_assignment, build_id, encode_verified_snapshot

TOPICS = sized(2_000, 10_000)
TOPIC_BYTES_MAX = 500
"""10,000 topics take at most 5 MB besides their partitions."""


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
