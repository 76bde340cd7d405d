from __future__ import annotations

import pytest

from chronik.coordination.machine import StateDeleted
from chronik.errors import InvariantError
from chronik.groups import events
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import COMMIT_BATCH_BYTES_MAX, GroupConfig
from chronik.groups.offsets import build_commit_commands, offset_error
from chronik.groups.requests import LeavingMember
from chronik.metadata.commands.groups import OffsetToCommit
from chronik.protocol.errors import ErrorCode

from .group_harness import SESSION_MS, GroupHarness


def test_commit_is_accepted_only_in_members_generation() -> None:
    lab = GroupHarness()
    (member,) = lab.create_stable_group(None)
    assert lab.commit(member, 1) is ErrorCode.NONE
    assert lab.commit(member, 0) is ErrorCode.ILLEGAL_GENERATION
    assert lab.commit(member, 2) is ErrorCode.ILLEGAL_GENERATION
    assert lab.commit("unknown", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.commit(member, -1) is ErrorCode.ILLEGAL_GENERATION


def test_commit_before_assignment_is_rejected() -> None:
    lab = GroupHarness()
    assert lab.commit(lab.join_first_member(), 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_commit_during_join_phase_is_accepted() -> None:
    lab = GroupHarness()
    (member,) = lab.create_stable_group(None)
    lab.join()
    assert lab.state() is GroupState.PREPARING_REBALANCE
    assert lab.commit(member, 1) is ErrorCode.NONE


def test_commit_without_member_id_requires_empty_group() -> None:
    lab = GroupHarness()
    (member,) = lab.create_stable_group(None)
    assert lab.commit() is ErrorCode.UNKNOWN_MEMBER_ID
    lab.leave(LeavingMember(member))
    assert lab.commit() is ErrorCode.NONE
    assert lab.commit(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_keeps_session_alive() -> None:
    lab = GroupHarness()
    (member,) = lab.create_stable_group(None)
    for _ in range(3):
        lab.advance_time(SESSION_MS - 1)
        assert lab.commit(member, 1) is ErrorCode.NONE


def test_rejected_commit_does_not_keep_session_alive() -> None:
    lab = GroupHarness()
    (member,) = lab.create_stable_group(None)
    lab.advance_time(SESSION_MS - 1)
    assert lab.commit(member, generation=lab.group.generation - 1) is ErrorCode.ILLEGAL_GENERATION
    lab.advance_time(1)
    assert lab.state() is GroupState.EMPTY


def test_group_with_offsets_outlives_its_members() -> None:
    lab = GroupHarness()
    given = lab.join_result(lab.join(require_known_member_id=True)).member_id
    lab.handle_event(events.OffsetsStored(lab.now_ms))
    lab.leave(LeavingMember(given))
    assert not lab.forgotten
    lab.handle_event(StateDeleted(lab.now_ms))
    assert lab.forgotten


@pytest.mark.parametrize(
    ("offset", "error"),
    [
        (OffsetToCommit("t", 0, 5, -1, None), ErrorCode.NONE),
        (OffsetToCommit("t", 0, 5, -1, "m" * 4096), ErrorCode.NONE),
        (OffsetToCommit("t", 0, 5, -1, "m" * 4097), ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_offset_with_oversized_metadata_is_rejected(offset: OffsetToCommit, error: ErrorCode) -> None:
    assert offset_error(offset, GroupConfig()) is error


def test_large_commit_is_split_into_commands_of_bounded_size() -> None:
    offsets = tuple(OffsetToCommit("topic", partition, partition, 0, "m" * 4096) for partition in range(1_000))
    commands = list(build_commit_commands("orders", offsets, now_ms=7))
    assert len(commands) > 1
    assert [offset for command, _ in commands for offset in command.offsets] == list(offsets)
    assert all(size_bytes <= COMMIT_BATCH_BYTES_MAX for _, size_bytes in commands)
    assert {command.commit_time_ms for command, _ in commands} == {7}


@pytest.mark.parametrize(("retention_ms", "expires_ms"), [(-1, -1), (0, 7), (100, 107), (2**63 - 1, 2**63 - 1)])
def test_client_retention_time_becomes_expire_timestamp(retention_ms: int, expires_ms: int) -> None:
    ((command, _),) = build_commit_commands("orders", [OffsetToCommit("t", 0, 1)], 7, retention_ms)
    assert command.expire_time_ms == expires_ms


@pytest.mark.parametrize("offset", [OffsetToCommit("t", -1, 5), OffsetToCommit("t", 0, 5, -7)])
def test_commit_with_invalid_partition_violates_invariant(offset: OffsetToCommit) -> None:
    with pytest.raises(InvariantError):
        list(build_commit_commands("orders", [offset], now_ms=7))
