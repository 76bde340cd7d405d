"""Size, chunking, consistency and verification of snapshots, and their installation on a lagging follower."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from chronik.errors import DamagedDataError, InvariantError
from chronik.limits import TOPIC_PARTITIONS_MAX
from chronik.metadata import image_state_machine
from chronik.metadata.commands.brokers import UpdateBrokerConfig
from chronik.metadata.commands.cluster import SetFeatureLevel
from chronik.metadata.commands.groups import (
    CommitOffset,
    DeleteConsumerGroup,
    GroupMember,
    OffsetToCommit,
    UpdateConsumerGroup,
)
from chronik.metadata.commands.topics import CreateTopic, CreateTopics, DeleteTopic, UpdateTopicConfig
from chronik.metadata.delta import Delta, diff_images
from chronik.metadata.handlers.configs import CONFIG_CHARACTERS_MAX
from chronik.metadata.image import Image
from chronik.metadata.image_state_machine import ImageStateMachine
from chronik.metadata.snapshot import CHUNK_RECORDS, SnapshotLoader, decode_snapshot, encode_snapshot

from .metadata_world import MetadataWorld, build_assignment, encode_verified_snapshot, image_records
from .test_topics import creation

PARTITIONS = 2 * CHUNK_RECORDS
GROUPS = 5


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


def worlds() -> tuple[MetadataWorld, MetadataWorld]:
    """Return two worlds with a common history; in the second, records of every type were changed, added and removed."""
    earlier, later = MetadataWorld(1, 2), MetadataWorld(1, 2)
    for world in (earlier, later):
        kept = world.create("kept", *(build_assignment(1),) * PARTITIONS, number=1)
        gone = world.create("gone", number=2)
        for group in range(GROUPS):
            commit(world, f"group-{group}", PARTITIONS, 100)
    for command in (
        DeleteTopic(gone.id),
        CreateTopic(bytes(15) + b"3", "come", (build_assignment(2),), {}, 1),
        UpdateTopicConfig(kept.id, {"retention.ms": "5"}),
        UpdateBrokerConfig(1, {"log.retention.ms": "6"}),
        SetFeatureLevel("feature", 1),
    ):
        later.accept(command)
    commit(later, "group-1", 1, 101)
    commit(later, "group-new", 1, 7)
    later.register(3)
    return earlier, later


def commit(world: MetadataWorld, group: str, count: int, offset: int) -> None:
    offsets = tuple(OffsetToCommit("kept", partition, offset) for partition in range(count))
    assert not world.accept(CommitOffset(group, offsets, 1)).failures


async def iterate_chunks(chunks: Sequence[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


class Follower:
    def __init__(self, image: Image) -> None:
        self.deltas: list[Delta] = []
        self.restored = 0
        self.machine = ImageStateMachine(self.deltas.append, lambda *_: None, self._restored)
        self.machine.image = image

    def _restored(self) -> None:
        self.restored += 1

    async def install(self, world: MetadataWorld, chunks: Sequence[bytes] | None = None) -> None:
        whole = encode_verified_snapshot(world.image) if chunks is None else chunks
        await self.machine.install_snapshot(world.image.applied_index, iterate_chunks(whole))


def test_snapshot_install_replaces_image_atomically_with_one_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.scheduler.SLICE_SECONDS", 0.0)
    earlier, later = worlds()
    follower = Follower(earlier.image)
    before, after = image_records(earlier.image), image_records(later.image)
    expected = diff_images(earlier.image, later.image)
    seen: list[tuple[Image, int]] = []

    async def scenario() -> None:
        installing = asyncio.create_task(follower.install(later))
        while not installing.done():
            seen.append((follower.machine.image, len(follower.deltas)))
            await asyncio.sleep(0)
        await installing

    asyncio.run(scenario())
    iterations_before = [count for image, count in seen if image is earlier.image]
    iterations_after = [count for image, count in seen if image is not earlier.image]
    assert len(iterations_before) > GROUPS * PARTITIONS // CHUNK_RECORDS  # other tasks ran during load and comparison
    assert len(iterations_after) > GROUPS  # and while the old image was freed
    assert set(iterations_before) == {0}
    assert set(iterations_after) == {1}
    assert image_records(follower.machine.image) == after
    assert image_records(earlier.image) == before  # a reader of the old image still sees all of it
    assert follower.deltas == [expected]
    assert follower.restored == 1


def test_delta_of_snapshot_contains_all_changes() -> None:
    earlier, later = worlds()
    follower = Follower(earlier.image)
    asyncio.run(follower.install(later))
    (delta,) = follower.deltas
    names = [(change.old and change.old.name, change.new and change.new.name) for change in delta.topics]
    assert names == [("gone", None), (None, "come"), ("kept", "kept")]
    assert delta.offsets == ("group-1", "group-new")
    assert [change.new.id for change in delta.brokers if change.new is not None] == [3]
    assert [change.new.group_id for change in delta.groups if change.new is not None] == ["group-new"]
    assert (delta.broker_configs, delta.features) == ((1,), ("feature",))


def test_snapshot_install_yields_after_every_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts chunks and steps instead of measuring time."""
    monkeypatch.setattr("chronik.scheduler.SLICE_SECONDS", 0.0)
    earlier, later = worlds()
    follower = Follower(earlier.image)
    chunks, turns, added = encode_verified_snapshot(later.image), 0, []

    class Counting(SnapshotLoader):
        def add(self, chunk: bytes) -> None:
            added.append(turns)
            super().add(chunk)

    monkeypatch.setattr(image_state_machine, "SnapshotLoader", Counting)

    async def scenario() -> None:
        nonlocal turns
        installing = asyncio.create_task(follower.install(later, chunks))
        while not installing.done():
            turns += 1
            await asyncio.sleep(0)
        await installing

    asyncio.run(scenario())
    assert len(chunks) > GROUPS
    assert len(set(added)) == len(chunks)  # never two chunks in one event-loop iteration


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
def test_cancelled_snapshot_install_keeps_old_image_and_can_be_repeated(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chronik.scheduler.SLICE_SECONDS", 0.0)
    earlier, later = worlds()
    before = image_records(earlier.image)
    follower = Follower(earlier.image)

    async def stopped_after(turns: int) -> None:
        installing = asyncio.create_task(follower.install(later))
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not installing.done()
        installing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await installing

    turns_until_seen = asyncio.run(count_iterations(Follower(worlds()[0].image), later))
    asyncio.run(stopped_after(int(share * turns_until_seen)))
    assert follower.machine.image is earlier.image
    assert image_records(earlier.image) == before
    assert not follower.deltas
    assert not follower.restored

    again = Follower(Image())
    asyncio.run(again.install(later))
    assert image_records(again.machine.image) == image_records(later.image)


async def count_iterations(follower: Follower, world: MetadataWorld) -> int:
    """Return the number of event-loop iterations until the new image is visible."""
    installing = asyncio.create_task(follower.install(world))
    turns = 0
    while not follower.deltas:
        turns += 1
        await asyncio.sleep(0)
    await installing
    return turns


def test_damaged_snapshot_leaves_image_unchanged() -> None:
    earlier, later = worlds()
    follower = Follower(earlier.image)
    chunks = encode_verified_snapshot(later.image)
    with pytest.raises(DamagedDataError):
        asyncio.run(follower.install(later, chunks[:-2] + chunks[-1:]))
    assert follower.machine.image is earlier.image
    assert not follower.deltas
