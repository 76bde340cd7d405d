"""The table of committed offsets: contents, snapshots and memory usage."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronik.errors import DamagedDataError, InvariantError
from chronik.metadata import offsets as offsets_module
from chronik.metadata.apply import apply
from chronik.metadata.commands.envelope import Envelope, decode_command, encode_command
from chronik.metadata.commands.groups import (
    CommitOffset,
    CommitOffsetBatch,
    DeleteConsumerGroup,
    DeleteOffsets,
    ExpiredOffset,
    ExpireOffsets,
    OffsetKey,
    OffsetToCommit,
)
from chronik.metadata.commands.topics import CreateTopic, DeleteTopic
from chronik.metadata.delta import diff_images
from chronik.metadata.offsets import OFFSET_BYTES, UNUSED_TOPICS_MAX, OffsetSizes, OffsetTable
from chronik.metadata.records import CommittedOffset
from chronik.metadata.snapshot import OffsetsEntry, decode_snapshot
from tests.run_size import sized

from .metadata_world import (
    NODE,
    NODE_INCARNATION,
    MetadataWorld,
    build_assignment,
    build_id,
    encode_verified_snapshot,
    image_records,
)

GOLDEN = Path(__file__).with_name("golden")
SORTED, UNSORTED = "offsets-sorted.msgpack", "offsets-in-commit-order.msgpack"
"""The chunks of snapshots that version 0.6 wrote, after commits in order of the partitions, and in another order."""

Model = dict[str, dict[tuple[str, int], CommittedOffset]]


# --- snapshots -----------------------------------------------------------------------------------------------------


def golden(name: str) -> list[bytes]:
    return msgspec.msgpack.decode((GOLDEN / name).read_bytes(), type=list[bytes])


def golden_world(name: str) -> MetadataWorld:
    world = MetadataWorld(1)
    topics = [
        world.create(topic, *(build_assignment(1),) * 200) for topic in ("audit", "orders", "payments", "returns")
    ]
    numbers = range(200) if name == SORTED else [(67 * number) % 200 for number in range(200)]
    names = ["audit", "orders", "payments", "returns"] if name == SORTED else ["payments", "audit", "returns", "orders"]
    for group in range(5):
        commits = tuple(
            CommitOffset(
                f"group-{group}", (OffsetToCommit(topic, number, group + 10**12 + number, number % 7 - 1, ""),), 5
            )
            for topic in names
            for number in numbers
        )
        world.accept(CommitOffsetBatch(commits))
    metadata = tuple(
        OffsetToCommit("orders", number, -1, -1, f"note {number // 2} \N{SNOWMAN}") for number in range(50)
    )
    world.accept(CommitOffset("group-1", metadata, 1_700_000_000_000))
    world.accept(CommitOffset("group-2", metadata[:9], 1_700_000_000_001, 2**63 - 1))
    world.accept(CommitOffset("group-3", (OffsetToCommit("audit", 7, 2**63 - 1, 2**31 - 1),), 2**63 - 1, 0))
    world.accept(CommitOffset("group-3", (OffsetToCommit("audit", 9, -(2**63), -1),), -1))
    world.accept(DeleteOffsets("group-1", tuple(OffsetKey("payments", number) for number in range(0, 200, 3))))
    world.accept(ExpireOffsets("group-2", tuple(ExpiredOffset("payments", number, 5) for number in range(90))))
    world.accept(DeleteConsumerGroup("group-4"))
    world.accept(DeleteTopic(topics[3].id))
    return world


def test_snapshot_of_sorted_commits_has_the_bytes_that_0_6_wrote() -> None:
    assert encode_verified_snapshot(golden_world(SORTED).image) == golden(SORTED)


@pytest.mark.parametrize("name", [SORTED, UNSORTED])
def test_snapshot_of_0_6_loads_with_the_same_records_and_hash(name: str) -> None:
    loaded = decode_snapshot(golden(name))
    assert f"{loaded.state_hash:032x}" == "2228fcd123678b004dcc06d5cd2d19ca"
    assert image_records(loaded) == image_records(golden_world(name).image)
    assert encode_verified_snapshot(loaded) == golden(SORTED)


def test_commit_order_does_not_change_snapshot() -> None:
    assert encode_verified_snapshot(golden_world(UNSORTED).image) == encode_verified_snapshot(
        golden_world(SORTED).image
    )


@pytest.mark.parametrize("partition", [-1, 2**32])
def test_snapshot_with_impossible_partition_is_damaged(partition: int) -> None:
    (chunk,) = encode_verified_snapshot(MetadataWorld(1).image)
    entry = OffsetsEntry("g", "t", ((partition, CommittedOffset(1, -1, "", 1)),))
    with pytest.raises(DamagedDataError, match=f"t-{partition}"):
        decode_snapshot([chunk, msgspec.msgpack.encode([entry])])


# --- equality with a dict of dicts ---------------------------------------------------------------------------------

GROUPS = st.sampled_from(["g1", "g2"])
TOPICS = st.sampled_from(["a", "b", "c"])
PARTITIONS = st.integers(0, 40)
COMMITTED = st.builds(
    CommittedOffset,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.none() | st.just("") | st.sampled_from(["m", "metadata", "\N{SNOWMAN}"]),
    st.integers(-1, 2**63 - 1),
    st.just(-1) | st.integers(-1, 2**63 - 1),
)
PUTS = st.tuples(st.just("put"), GROUPS, TOPICS, PARTITIONS, COMMITTED)
OPERATIONS = st.one_of(
    PUTS,
    PUTS,
    st.tuples(st.just("put range"), GROUPS, TOPICS, PARTITIONS, COMMITTED),
    st.tuples(st.just("append"), GROUPS, TOPICS, st.lists(PARTITIONS, unique=True), st.booleans()),
    st.tuples(st.just("remove"), GROUPS, TOPICS, PARTITIONS),
    st.tuples(st.just("remove range"), GROUPS, TOPICS, PARTITIONS),
    st.tuples(st.just("remove topic"), GROUPS, TOPICS),
    st.tuples(st.just("remove group"), GROUPS),
    st.tuples(st.just("freeze")),
)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Chunks of at most four records, and topic numbers that are compacted after each removal."""
    with monkeypatch.context() as patch:
        patch.setattr(offsets_module, "CHUNK_RECORDS_MAX", 4)
        patch.setattr(offsets_module, "UNUSED_TOPICS_MAX", 0)
        yield


class ModelledTable:
    """A table, the dict that it must equal, and the sum of the hashes that it reported."""

    def __init__(self) -> None:
        self.table = OffsetTable()
        self.model: Model = {}
        self.hashes: dict[tuple[str, str, int], int] = {}
        self.hash_sum = 0

    def put(self, group: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        record_hash = len(self.hashes) + hash((group, topic, partition, committed)) % 2**64
        replaced = self.table.put(group, topic, partition, committed, record_hash.to_bytes(16, "little"))
        known = self.hashes.get((group, topic, partition))
        assert replaced == (None if known is None else known.to_bytes(16, "little"))
        self.hash_sum += record_hash - (known or 0)
        self.hashes[group, topic, partition] = record_hash
        self.model.setdefault(group, {})[topic, partition] = committed

    def append(self, group: str, topic: str, partitions: list[int], committed: CommittedOffset) -> None:
        """Append the offsets, or put them if they don't follow the others."""
        offsets = [(partition, committed) for partition in partitions]
        if not self.table.append(group, topic, offsets, [partition.to_bytes(16, "little") for partition in partitions]):
            for partition in partitions:
                self.put(group, topic, partition, committed)
            return
        self.model.setdefault(group, {}).update({(topic, partition): committed for partition in partitions})
        self.hashes.update({(group, topic, partition): partition for partition in partitions})
        self.hash_sum += sum(partitions)

    def remove(self, group: str, topic: str, partition: int) -> None:
        if (topic, partition) in self.model.get(group, {}):
            self._forget(group, [(topic, partition)])
            self.hash_sum -= self.table.remove(group, topic, partition)
        else:
            with pytest.raises(InvariantError):
                self.table.remove(group, topic, partition)

    def remove_topic(self, group: str, topic: str) -> None:
        self._forget(group, [key for key in self.model.get(group, {}) if key[0] == topic])
        self.hash_sum -= self.table.remove_topic(group, topic)

    def remove_group(self, group: str) -> None:
        self._forget(group, list(self.model.get(group, {})))
        self.hash_sum -= self.table.remove_group(group)

    def _forget(self, group: str, keys: list[tuple[str, int]]) -> None:
        for key in keys:
            del self.model[group][key], self.hashes[group, *key]
        if group in self.model and not self.model[group]:
            del self.model[group]

    def check(self) -> None:
        table, model = self.table, self.model
        assert {group: dict(table.group(group)) for group in table.group_ids()} == model
        assert self.hash_sum == sum(self.hashes.values())
        sizes = {group: sum(map(size, offsets.values())) for group, offsets in model.items()}
        metadata = sum(len(each.metadata or "") for offsets in model.values() for each in offsets.values())
        for group in ("g1", "g2"):
            offsets, expected = table.group(group), model.get(group, {})
            assert table.sizes(group) == OffsetSizes(sizes.get(group, 0), sum(sizes.values()), metadata)
            assert len(offsets) == len(expected)
            assert dict(offsets.items()) == expected
            assert list(offsets) == [key for key, _ in offsets.items()]
            by_topic = [(topic, each) for topic, partitions in offsets.by_topic() for each in partitions]
            assert by_topic == [(topic, (number, each)) for (topic, number), each in sorted(expected.items())]
            assert sum(offsets.record_hashes()) == sum(each for key, each in self.hashes.items() if key[0] == group)
            for topic in ("a", "b", "c", "unknown"):
                of_topic = {partition: each for (name, partition), each in expected.items() if name == topic}
                assert list(offsets.iter_offsets_of_topic(topic)) == sorted(of_topic.items())
                assert [offsets.get((topic, number)) for number in range(45)] == [
                    of_topic.get(number) for number in range(45)
                ]
                assert table.get(group, topic, 3) == of_topic.get(3)
        for chunk in (chunk for group in table._groups.values() for chunk in offsets_module._all(group)):
            assert 0 < len(chunk.keys) <= offsets_module.CHUNK_RECORDS_MAX
            assert list(chunk.keys) == sorted(set(chunk.keys))
            assert len(chunk.values) == len(chunk.keys) * offsets_module.VALUE_BYTES
            assert chunk.notes is None or len(chunk.notes) == len(chunk.keys)
        for topic in ("a", "b", "c", "unknown"):
            assert table.group_ids_with_topic(topic) == [
                group for group in table.group_ids() if any(name == topic for name, _ in model[group])
            ]


def size(committed: CommittedOffset) -> int:
    return OFFSET_BYTES + len(committed.metadata or "")


def run_operation(modelled: ModelledTable, name: str, *arguments: Any) -> None:
    match name, *arguments:
        case "put", group, topic, partition, committed:
            modelled.put(group, topic, partition, committed)
        case "put range", group, topic, partition, committed:
            for number in range(partition, 41):
                modelled.put(group, topic, number, committed)
        case "append", group, topic, partitions, is_sorted:
            committed = CommittedOffset(7, 1, None, 5)
            modelled.append(group, topic, sorted(partitions) if is_sorted else partitions, committed)
        case "remove", group, topic, partition:
            modelled.remove(group, topic, partition)
        case "remove range", group, topic, partition:
            for number in range(partition, 41):
                modelled.remove(group, topic, number)
        case "remove topic", group, topic:
            modelled.remove_topic(group, topic)
        case "remove group", group:
            modelled.remove_group(group)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(operations=st.lists(OPERATIONS, max_size=25))
def test_table_equals_dict_after_any_operations(small_chunks: None, operations: list[tuple[Any, ...]]) -> None:
    modelled = ModelledTable()
    moments: list[tuple[Any, Model]] = []
    for operation in operations:
        run_operation(modelled, *operation)
        if operation == ("freeze",):
            frozen = modelled.table.freeze()
            moments.append((frozen, {group: dict(offsets) for group, offsets in modelled.model.items()}))
    modelled.check()
    for frozen, model in moments:
        assert {group: dict(offsets.items()) for group, offsets in frozen.groups()} == model


@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
def test_table_equals_dict_with_usual_chunk_sizes(order: str) -> None:
    keys = [(topic, number) for topic in "ab" for number in range(5_000)]
    if order == "random":
        random.Random(5).shuffle(keys)
    modelled = ModelledTable()
    for topic, number in reversed(keys) if order == "descending" else keys:
        modelled.put("g1", topic, number, CommittedOffset(number, 0, "m" if number % 97 == 0 else "", number))
    modelled.check()
    for topic, number in keys[::3]:
        modelled.remove("g1", topic, number)
    modelled.check()
    modelled.remove_topic("g1", "b")
    modelled.check()
    modelled.remove_group("g1")
    modelled.check()


def test_appended_offsets_follow_one_with_metadata() -> None:
    modelled = ModelledTable()
    modelled.put("g1", "a", 0, CommittedOffset(1, -1, "m", 1))
    modelled.append("g1", "a", [1, 2], CommittedOffset(2, -1, "", 2))
    modelled.put("g1", "a", 3, CommittedOffset(3, -1, "n", 3))
    modelled.check()


def test_topic_numbers_of_removed_topics_are_released() -> None:
    table = OffsetTable()
    table.put("g", "kept", 0, CommittedOffset(1, -1, "", 1), bytes(16))
    held = table.group("g")
    for number in range(3 * UNUSED_TOPICS_MAX):
        table.put("g", f"temporary-{number}", 0, CommittedOffset(1, -1, "", 1), bytes(16))
        table.remove("g", f"temporary-{number}", 0)
    assert len(table._topics.numbers) <= UNUSED_TOPICS_MAX + 2
    assert dict(held) == dict(table.group("g")) == {("kept", 0): CommittedOffset(1, -1, "", 1)}


COMMITS = st.builds(
    CommitOffset,
    GROUPS,
    st.lists(
        st.builds(
            OffsetToCommit, TOPICS, st.integers(0, 11), st.integers(0, 3), st.just(-1), st.sampled_from([None, "", "m"])
        ),
        max_size=20,
    ).map(tuple),
    st.integers(0, 3),
    st.sampled_from([-1, 7]),
)
COMMANDS = st.one_of(
    COMMITS,
    st.builds(CommitOffsetBatch, st.lists(COMMITS, max_size=3).map(tuple)),
    st.builds(DeleteOffsets, GROUPS, st.lists(st.builds(OffsetKey, TOPICS, st.integers(0, 11)), max_size=9).map(tuple)),
    st.builds(
        ExpireOffsets,
        GROUPS,
        st.lists(st.builds(ExpiredOffset, TOPICS, st.integers(0, 11), st.integers(0, 3)), max_size=9).map(tuple),
    ),
    st.builds(DeleteConsumerGroup, GROUPS),
    st.builds(DeleteTopic, st.integers(1, 3).map(build_id)),
    st.just("snapshot"),
)


def apply_to_model(model: Model, topics: dict[bytes, str], command: Any) -> None:
    match command:
        case CommitOffset():
            for each in command.offsets:
                if each.topic in topics.values():
                    model.setdefault(command.group_id, {})[each.topic, each.partition] = CommittedOffset(
                        each.offset, each.leader_epoch, each.metadata, command.commit_time_ms, command.expire_time_ms
                    )
        case CommitOffsetBatch():
            for commit in command.commits:
                apply_to_model(model, topics, commit)
        case DeleteOffsets():
            for key in command.keys:
                model.get(command.group_id, {}).pop((key.topic, key.partition), None)
        case ExpireOffsets():
            offsets = model.get(command.group_id, {})
            for seen in command.offsets:
                known = offsets.get((seen.topic, seen.partition))
                if known is not None and known.commit_time_ms == seen.commit_time_ms:
                    del offsets[seen.topic, seen.partition]
        case DeleteConsumerGroup():
            model.pop(command.group_id, None)
        case DeleteTopic():
            name = topics.pop(command.topic_id, None)
            for group, offsets in model.items():
                model[group] = {key: each for key, each in offsets.items() if key[0] != name}
    for group in [group for group, offsets in model.items() if not offsets]:
        del model[group]


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(commands=st.lists(COMMANDS, max_size=20))
def test_image_equals_dict_after_any_commands_and_snapshots(small_chunks: None, commands: list[Any]) -> None:
    world = MetadataWorld(1)
    topics = {build_id(number): name for number, name in enumerate("abc", 1)}
    for topic_id, name in topics.items():
        world.accept(CreateTopic(topic_id, name, (build_assignment(1),) * 12, {}, 0))
    model: Model = {}
    for command in commands:
        if command == "snapshot":
            loaded = decode_snapshot(encode_verified_snapshot(world.image))
            assert not diff_images(world.image, loaded)
            assert loaded.state_hash == world.image.state_hash
            world.image = loaded
        else:
            before = {group: dict(offsets) for group, offsets in model.items()}
            world.apply(command)
            apply_to_model(model, topics, command)
            changed = {group for group in {*before, *model} if before.get(group) != model.get(group)}
            assert changed <= set(world.delta.offsets)
        assert {group: dict(world.image.offsets(group)) for group in world.image.iter_groups_with_offsets()} == model
    encode_verified_snapshot(world.image)


# --- memory --------------------------------------------------------------------------------------------------------


def commits(groups: int, topics: int, partitions: int, first_sequence: int) -> Iterator[bytes]:
    """Yield encoded commands of each group's commits, one per partition, in random order."""
    keys = [(topic, partition) for topic in range(topics) for partition in range(partitions)]
    rng = random.Random(7)
    for group in range(groups):
        rng.shuffle(keys)
        batch = tuple(
            CommitOffset(
                f"consumer-group-{group:06d}",
                (OffsetToCommit(f"orders-of-region-{topic:03d}", partition, 10**9 + rng.randrange(10**9), 5, ""),),
                1_700_000_000_000 + rng.randrange(10**9),
            )
            for topic, partition in keys
        )
        sequence = first_sequence + group
        yield encode_command(Envelope(NODE, NODE_INCARNATION, sequence, sequence - 1, CommitOffsetBatch(batch)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("groups", "topics", "partitions"),
    [
        pytest.param(sized(30, 1_000), 1, 1_000, id="1000-groups-1000-partitions"),
        pytest.param(sized(300, 10_000), 10, 10, id="10000-groups-10-topics-10-partitions"),
        pytest.param(sized(3_000, 100_000), 10, 1, id="100000-groups-10-topics-1-partition"),
        pytest.param(sized(3_000, 100_000), 1, 10, id="100000-groups-1-topic-10-partitions"),
    ],
)
def test_million_committed_offsets_take_at_most_100_megabytes(groups: int, topics: int, partitions: int) -> None:
    """The size includes that of the groups. Outside of `make long`, fewer offsets take 100 bytes each at most."""
    world = MetadataWorld(1)
    for number in range(topics):
        world.create(f"orders-of-region-{number:03d}", *(build_assignment(1),) * partitions)
    encoded = list(commits(groups, topics, partitions, len(world.envelopes) + 1))
    gc.collect()
    tracemalloc.start()
    try:
        for each in encoded:
            apply(world.image, decode_command(each), world.image.applied_index + 1)
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    offsets = groups * topics * partitions
    assert sum(len(world.image.offsets(group)) for group in world.image.groups) == offsets
    assert used <= 100 * offsets, f"{used / offsets:.1f} bytes per offset"
