"""Size, chunking, consistency and verification of snapshots."""

from __future__ import annotations

import pytest

from chronik.errors import DamagedDataError, InvariantError
from chronik.limits import TOPIC_PARTITIONS_MAX
from chronik.metadata.commands.groups import (
    CommitOffset,
    DeleteConsumerGroup,
    GroupMember,
    OffsetToCommit,
    UpdateConsumerGroup,
)
from chronik.metadata.commands.topics import CreateTopic, CreateTopics, DeleteTopic
from chronik.metadata.handlers.configs import CONFIG_CHARACTERS_MAX
from chronik.metadata.image import Image
from chronik.metadata.snapshot import CHUNK_RECORDS, decode_snapshot, encode_snapshot

from .metadata_world import MetadataWorld, build_assignment, encode_verified_snapshot, image_records
from .test_topics import creation


def test_snapshot_of_ten_thousand_topics_is_below_one_megabyte() -> None:
    world = MetadataWorld(1, 2, 3)
    for first in range(0, 10_000, 1000):
        topics = tuple(
            creation(f"topic-with-20-{n:06d}", n + 1, (build_assignment(1, 2, 3),)) for n in range(first, first + 1000)
        )
        assert not world.accept(CreateTopics(topics)).failures
    assert {len(name) for name in world.image.topics} == {20}
    size = sum(map(len, encode_verified_snapshot(world.image)))
    assert size <= 1_000_000, size


def test_snapshot_needs_less_than_hundred_bytes_per_offset() -> None:
    world = MetadataWorld(1)
    world.create("topic-with-20-letters", *(build_assignment(1),) * 1000)
    for group in range(20):
        offsets = tuple(OffsetToCommit("topic-with-20-letters", n, 10**12 + n, 40, "") for n in range(1000))
        world.accept(CommitOffset(f"a-group-{group}", offsets, 1_700_000_000_000))
    size = sum(map(len, encode_verified_snapshot(world.image)))
    assert size <= 20_000 * 100, size


def test_snapshot_chunks_have_limited_number_of_records() -> None:
    world = MetadataWorld(1)
    world.create("large", *(build_assignment(1),) * TOPIC_PARTITIONS_MAX)
    for group in ("a", "b"):
        offsets = tuple(OffsetToCommit("large", n, n) for n in range(TOPIC_PARTITIONS_MAX))
        world.accept(CommitOffset(group, offsets, 1))
    chunks = encode_verified_snapshot(world.image)
    records = 3 * TOPIC_PARTITIONS_MAX
    assert len(chunks) >= records // CHUNK_RECORDS
    assert max(map(len, chunks)) < 3 * records * 30 / len(chunks)
    assert image_records(decode_snapshot(chunks)) == image_records(world.image)


def test_snapshot_chunks_stay_small_with_large_members_and_configs() -> None:
    world = MetadataWorld(1)
    for number in range(20):
        member = GroupMember(f"m{number}", None, "c", "/h", 1, 1, (("range", bytes(400_000)),), bytes(100_000))
        world.accept(UpdateConsumerGroup(f"g{number}", "consumer", 1, "range", "m", "Stable", (member,), 1))
        configs = {"c": "\N{GRINNING FACE}" * (CONFIG_CHARACTERS_MAX - 1)}
        world.accept(CreateTopic(bytes(15) + bytes([number + 1]), f"t{number}", (build_assignment(1),), configs, 1))
    chunks = encode_verified_snapshot(world.image)
    assert sum(map(len, chunks)) > 14_000_000
    assert max(map(len, chunks)) < 2_500_000
    assert image_records(decode_snapshot(chunks)) == image_records(world.image)


def test_frozen_image_is_unaffected_by_later_commands() -> None:
    world = MetadataWorld(1)
    topics = [world.create(f"t{n}", build_assignment(1), build_assignment(1)) for n in range(4)]
    for group in ("a", "b", "c", "d"):
        world.accept(CommitOffset(group, tuple(OffsetToCommit(f"t{n}", p, 1) for n in range(4) for p in (0, 1)), 1))
    before = image_records(world.image)
    frozen = world.image.freeze()
    chunks = encode_snapshot(frozen)
    world.accept(CommitOffset("a", (OffsetToCommit("t0", 0, 99), OffsetToCommit("t0", 1, 99)), 2))
    world.accept(CommitOffset("new", (OffsetToCommit("t0", 0, 99),), 2))
    world.accept(DeleteTopic(topics[1].id))
    world.accept(DeleteConsumerGroup("b"))
    world.create("t9")
    world.register(1, incarnation_number=1)
    world.accept(CommitOffset("b", (OffsetToCommit("t0", 0, 98),), 3))
    assert image_records(decode_snapshot(chunks)) == before
    assert image_records(decode_snapshot(encode_verified_snapshot(world.image))) == image_records(world.replay())


def test_several_snapshots_can_be_encoded_concurrently() -> None:
    """A backup may read the image while the node takes a snapshot."""
    world = MetadataWorld(1)
    world.create("orders", build_assignment(1), build_assignment(1))
    expected_records, chunks = [], []
    for number in range(4):
        world.accept(CommitOffset("a", (OffsetToCommit("orders", number % 2, number),), number))
        expected_records.append(image_records(decode_snapshot(encode_verified_snapshot(world.image))))
        chunks.append(encode_snapshot(world.image.freeze()))
        world.accept(CommitOffset("a", (OffsetToCommit("orders", 0, 90 + number),), number))
    for number in (2, 0, 3):
        assert image_records(decode_snapshot(chunks[number])) == expected_records[number]
        world.accept(CommitOffset("a", (OffsetToCommit("orders", 1, 80 + number),), number))
    assert image_records(decode_snapshot(chunks[1])) == expected_records[1]


def test_encoding_fails_if_records_do_not_match_state_hash() -> None:
    world = MetadataWorld(1)
    world.create("orders")
    frozen = world.image.freeze()
    with pytest.raises(InvariantError):
        list(encode_snapshot(frozen._replace(state_hash=frozen.state_hash + 1)))


def test_modified_snapshot_is_rejected() -> None:
    world = MetadataWorld(1)
    world.create("orders")
    (chunk,) = encode_verified_snapshot(world.image)
    with pytest.raises(DamagedDataError, match="state hash"):
        decode_snapshot([chunk.replace(b"orders", b"0rders")])
    with pytest.raises(DamagedDataError, match="cannot decode"):
        decode_snapshot([chunk[:-1]])
    with pytest.raises(DamagedDataError, match="has no header"):
        decode_snapshot([])


def test_empty_image_snapshot_round_trip() -> None:
    assert image_records(decode_snapshot(encode_verified_snapshot(Image()))) == image_records(Image())
