"""Commands of consumer groups and committed offsets."""

from __future__ import annotations

import pytest

from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.groups import (
    CommitOffset,
    CommitOffsetBatch,
    CreateConsumerGroup,
    DeleteConsumerGroup,
    DeleteOffsets,
    ExpiredOffset,
    ExpireOffsets,
    GroupMember,
    OffsetKey,
    OffsetToCommit,
    UpdateConsumerGroup,
)
from chronik.metadata.names import OFFSETS_TOPIC, compute_coordinator_partition
from chronik.metadata.records import CommittedOffset, Group
from chronik.protocol.errors import ErrorCode

from .metadata_world import MetadataWorld, build_assignment

MEMBER = GroupMember("m1", "static-1", "client", "/127.0.0.1", 45_000, 300_000, (("range", b"\0\1"),), b"assigned")


def with_topic() -> MetadataWorld:
    world = MetadataWorld(1)
    world.create("orders", build_assignment(1), build_assignment(1))
    return world


def commit(group: str, *offsets: tuple[int, int], time: int = 100, epoch: int = -1) -> CommitOffset:
    wanted = tuple(OffsetToCommit("orders", partition, offset, 3, "note") for partition, offset in offsets)
    return CommitOffset(group, wanted, time, coordinator_epoch=epoch)


def update(group: str, generation: int, *members: GroupMember, epoch: int = -1, time: int = 5) -> UpdateConsumerGroup:
    state = "Stable" if members else "Empty"
    return UpdateConsumerGroup(group, "consumer", generation, "range", "m1", state, members, time, epoch)


def test_group_is_stored_as_written_by_coordinator() -> None:
    world = MetadataWorld()
    world.accept(update("g", 1, MEMBER))
    expected = Group("g", "consumer", 1, "range", "m1", "Stable", (MEMBER,), 5)
    assert world.image.groups["g"] == expected
    assert world.delta.groups == ((None, expected),)
    world.accept(update("g", 1))
    assert world.image.groups["g"].members == ()
    assert world.delta.groups[0].old == expected


def test_group_update_with_older_generation_is_rejected() -> None:
    world = MetadataWorld()
    world.accept(update("g", 5, MEMBER))
    assert world.reject(update("g", 4))[0] is ErrorCode.ILLEGAL_GENERATION


def test_creating_existing_group_is_rejected() -> None:
    world = MetadataWorld()
    world.accept(CreateConsumerGroup("g", "consumer", 7))
    assert (world.image.groups["g"].state, world.image.groups["g"].time_ms) == ("Empty", 7)
    assert world.reject(CreateConsumerGroup("g", "consumer", 8))[0] is ErrorCode.DUPLICATE_RESOURCE


def test_delete_group_requires_no_members_and_deletes_offsets() -> None:
    world = with_topic()
    assert world.reject(DeleteConsumerGroup("g"))[0] is ErrorCode.GROUP_ID_NOT_FOUND
    world.accept(update("g", 1, MEMBER))
    world.accept(commit("g", (0, 5), (1, 6)))
    assert world.reject(DeleteConsumerGroup("g"))[0] is ErrorCode.NON_EMPTY_GROUP
    world.accept(update("g", 2))
    world.accept(DeleteConsumerGroup("g"))
    assert "g" not in world.image.groups
    assert not world.image.offsets("g")
    assert world.delta.groups[0].deleted
    assert world.delta.offsets == ("g",)


def test_committed_offset_keeps_metadata_and_times() -> None:
    world = with_topic()
    world.accept(CommitOffset("g", (OffsetToCommit("orders", 1, 42, 3, "note"),), 100, 900))
    assert world.image.offset("g", "orders", 1) == CommittedOffset(42, 3, "note", 100, 900)
    assert dict(world.image.offsets("g")) == {("orders", 1): CommittedOffset(42, 3, "note", 100, 900)}
    assert len(world.image.offsets("g")) == 1
    assert ("orders", 0) not in world.image.offsets("g")
    assert world.delta.offsets == ("g",)


def test_first_commit_creates_group_and_later_commits_keep_it() -> None:
    world = with_topic()
    world.accept(commit("g", (0, 1)))
    group = world.image.groups["g"]
    assert (group.state, group.protocol_type, group.members, group.time_ms) == ("Empty", "", (), 100)
    world.accept(commit("g", (0, 2), time=200))
    assert world.image.groups["g"] is group


def test_commit_to_unknown_partition_fails_separately() -> None:
    world = with_topic()
    result = world.accept(commit("g", (0, 1), (2, 1), (1, 1)))
    assert [(failure.item, failure.code) for failure in result.failures] == [(1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert sorted(world.image.offsets("g")) == [("orders", 0), ("orders", 1)]
    world.accept(CommitOffset("nobody", (OffsetToCommit("gone", 0, 1),), 1))
    assert "nobody" not in world.image.groups


def test_commits_of_a_batch_succeed_or_fail_separately() -> None:
    world = with_topic()
    result = world.accept(CommitOffsetBatch((commit("a", (0, 1)), commit("b", (0, 1), epoch=9), commit("c", (5, 1)))))
    assert [(failure.item, failure.part, failure.code) for failure in result.failures] == [
        (1, -1, ErrorCode.NOT_COORDINATOR),
        (2, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert list(world.image.groups) == ["a"]


def test_delete_offsets_removes_only_given_partitions() -> None:
    world = with_topic()
    assert world.reject(DeleteOffsets("g", ()))[0] is ErrorCode.GROUP_ID_NOT_FOUND
    world.accept(commit("g", (0, 1), (1, 1)))
    world.accept(DeleteOffsets("g", (OffsetKey("orders", 0), OffsetKey("orders", 7), OffsetKey("gone", 0))))
    assert list(world.image.offsets("g")) == [("orders", 1)]
    assert "g" in world.image.groups


def test_only_unchanged_offsets_expire() -> None:
    world = with_topic()
    world.accept(commit("g", (0, 1), (1, 1), time=100))
    world.accept(commit("g", (1, 2), time=200))
    seen = (ExpiredOffset("orders", 0, 100), ExpiredOffset("orders", 1, 100), ExpiredOffset("gone", 0, 100))
    result = world.accept(ExpireOffsets("g", seen, group_time_ms=100))
    assert result.value == 1
    assert list(world.image.offsets("g")) == [("orders", 1)]
    assert "g" in world.image.groups
    world.accept(ExpireOffsets("g", (ExpiredOffset("orders", 1, 200),), group_time_ms=100))
    assert "g" not in world.image.groups


def test_group_changed_since_check_does_not_expire() -> None:
    world = with_topic()
    world.accept(update("g", 1, time=50))
    for command in (ExpireOffsets("g", (), 49), ExpireOffsets("g", ())):
        world.accept(command)
        assert "g" in world.image.groups
    world.accept(update("g", 2, MEMBER, time=60))
    world.accept(ExpireOffsets("g", (), 60))
    assert "g" in world.image.groups
    world.accept(ExpireOffsets("unknown", (), 60))


def test_commands_of_replaced_coordinator_are_rejected() -> None:
    world = with_topic()
    commands: list[Command] = [
        update("g", 1, epoch=0),
        CreateConsumerGroup("new", "consumer", 1, 0),
        commit("g", (0, 1), epoch=0),
        DeleteOffsets("g", (), 0),
        ExpireOffsets("g", (), -1, 0),
        DeleteConsumerGroup("g", 0),
    ]
    for command in commands:  # without an offsets topic there is no coordinator
        assert world.reject(command)[0] is ErrorCode.NOT_COORDINATOR
    world.create(OFFSETS_TOPIC, *(build_assignment(1),) * 50)
    for command in commands:
        world.accept(command)
    world.accept(update("g", 1))
    world.register(1, incarnation_number=1)
    for command in commands:
        assert world.reject(command)[0] is ErrorCode.NOT_COORDINATOR
    world.accept(commit("g", (0, 1), epoch=1))


@pytest.mark.parametrize(
    ("group", "partition"),
    # String.hashCode in Java: "" is 0, "a" 97, "group" 98629247, "polygenelubricants" is Integer.MIN_VALUE
    [("", 0), ("a", 97 % 50), ("group", 98629247 % 50), ("polygenelubricants", 0), ("ß€", (223 * 31 + 8364) % 50)],
)
def test_coordinator_partition_of_group_matches_kafka(group: str, partition: int) -> None:
    assert compute_coordinator_partition(group, 50) == partition
