from __future__ import annotations

import struct

import pytest

from chronik.groups import offsets as offsets_module
from chronik.groups import requests
from chronik.groups.classic.members import decode_subscribed_topics
from chronik.groups.config import GroupConfig
from chronik.groups.offsets import plan_offset_expiry
from chronik.groups.requests import LeavingMember, TopicPartition
from chronik.metadata.commands.groups import ExpiredOffset, ExpireOffsets
from chronik.metadata.records import CommittedOffset, Group
from chronik.protocol.errors import ErrorCode

from .group_harness import GroupHarness

RETENTION_MS = 1_000
CONFIG = GroupConfig(offsets_retention_ms=RETENTION_MS)
NOW_MS = 100_000
OLD_MS = NOW_MS - RETENTION_MS
FRESH_MS = OLD_MS + 1


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(name)) + name for name in (topic.encode() for topic in topics))
    return struct.pack(">hi", 3, len(topics)) + names + b"\xff\xff\xff\xff user data and whatever comes later"


def committed(time_ms: int, expire_time_ms: int = -1) -> CommittedOffset:
    return CommittedOffset(5, 0, "", time_ms, expire_time_ms)


def plan(lab: GroupHarness, offsets: dict[TopicPartition, CommittedOffset], group_time_ms: int) -> ExpireOffsets | None:
    stored = lab.stored[-1] if lab.stored else None
    members = stored.members if stored is not None else ()
    record = Group("orders", lab.group.protocol_type or "", 1, "range", None, "", members, group_time_ms)
    return plan_offset_expiry(lab.group, record, offsets, NOW_MS, CONFIG)


def group_without_members() -> GroupHarness:
    lab = GroupHarness(CONFIG)
    (member,) = lab.create_stable_group(None)
    lab.leave(LeavingMember(member))
    return lab


def group_without_member_history() -> GroupHarness:
    lab = GroupHarness(CONFIG)
    lab.store_answers = False
    given = lab.join_result(lab.join(require_known_member_id=True)).member_id
    lab.handle_event(requests.OffsetsStored(lab.now_ms))
    lab.leave(LeavingMember(given))
    return lab


def group_with_subscription(metadata: bytes) -> GroupHarness:
    lab = GroupHarness(CONFIG)
    lab.create_stable_group(None, protocols=(("range", metadata),))
    return lab


def test_offsets_expire_after_group_was_empty_for_retention_time() -> None:
    offsets = {("t", 0): committed(OLD_MS - 5), ("t", 1): committed(OLD_MS - 9)}
    assert plan(group_without_members(), offsets, group_time_ms=FRESH_MS) is None
    expected = (ExpiredOffset("t", 0, OLD_MS - 5), ExpiredOffset("t", 1, OLD_MS - 9))
    assert plan(group_without_members(), offsets, group_time_ms=OLD_MS) == ExpireOffsets("orders", expected, OLD_MS)


def test_commit_to_empty_group_restarts_retention() -> None:
    offsets = {("t", 0): committed(OLD_MS), ("t", 1): committed(FRESH_MS)}
    expected = ExpireOffsets("orders", (ExpiredOffset("t", 0, OLD_MS),), -1)
    assert plan(group_without_members(), offsets, group_time_ms=1) == expected


def test_retention_starts_at_commit_for_group_without_members() -> None:
    offsets = {("t", 0): committed(OLD_MS), ("t", 1): committed(FRESH_MS)}
    expired = (ExpiredOffset("t", 0, OLD_MS),)
    assert plan(group_without_member_history(), offsets, group_time_ms=NOW_MS) == ExpireOffsets("orders", expired, -1)
    assert plan(group_without_member_history(), {("t", 0): committed(OLD_MS)}, group_time_ms=3) == ExpireOffsets(
        "orders", expired, 3
    )


def test_empty_group_without_offsets_is_deleted() -> None:
    assert plan(group_without_members(), {}, group_time_ms=NOW_MS) == ExpireOffsets("orders", (), NOW_MS)


def test_group_with_pending_member_is_kept() -> None:
    lab = group_without_members()
    lab.join(require_known_member_id=True)
    assert plan(lab, {}, group_time_ms=OLD_MS) is None


def test_client_expire_time_overrides_retention() -> None:
    offsets = {("t", 0): committed(1, NOW_MS + 1), ("t", 1): committed(FRESH_MS, NOW_MS)}
    expected = ExpireOffsets("orders", (ExpiredOffset("t", 1, FRESH_MS),), -1)
    assert plan(group_without_members(), offsets, group_time_ms=1) == expected


def test_offsets_of_subscribed_topics_do_not_expire() -> None:
    lab = group_with_subscription(subscription("t", "other"))
    offsets = {("t", 0): committed(1), ("gone", 0): committed(OLD_MS), ("gone", 1): committed(FRESH_MS)}
    assert plan(lab, offsets, 1) == ExpireOffsets("orders", (ExpiredOffset("gone", 0, OLD_MS),), -1)


@pytest.mark.parametrize(
    "metadata",
    [b"", b"\0", subscription("topic")[:9], b"\0\0\x7f\xff\xff\xff\0\1t", b"\0\0\0\0\0\1\xff\xff"],
    ids=["empty", "truncated version", "truncated name", "two billion topics", "name of length -1"],
)
def test_offsets_do_not_expire_with_undecodable_subscription(metadata: bytes) -> None:
    assert decode_subscribed_topics([subscription("t"), metadata]) is None
    assert plan(group_with_subscription(metadata), {("gone", 0): committed(1)}, 1) is None


def test_offsets_do_not_expire_during_rebalance() -> None:
    lab = group_with_subscription(subscription("t"))
    lab.join(protocols=(("range", subscription("t")),))
    assert plan(lab, {("gone", 0): committed(1)}, 1) is None


def test_offsets_do_not_expire_while_store_has_members() -> None:
    lab = GroupHarness(CONFIG)
    (member,) = lab.create_stable_group(None)
    lab.store_answers = False
    lab.leave(LeavingMember(member))
    lab.complete_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert plan(lab, {("t", 0): committed(1)}, 1) is None


def test_expiry_commands_are_bounded_and_last_one_deletes_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offsets_module, "EXPIRED_OFFSETS_PER_COMMAND_MAX", 2)
    offsets = {("t", partition): committed(OLD_MS) for partition in range(3)}
    expired = tuple(ExpiredOffset("t", partition, OLD_MS) for partition in range(3))
    assert plan(group_without_members(), offsets, group_time_ms=OLD_MS) == ExpireOffsets("orders", expired[:2], -1)
    del offsets["t", 0]
    assert plan(group_without_members(), offsets, group_time_ms=OLD_MS) == ExpireOffsets("orders", expired[1:], OLD_MS)


def test_subscriptions_of_all_members_are_combined() -> None:
    subscriptions = [subscription("a", "b"), subscription("b", "ü"), subscription()]
    assert decode_subscribed_topics(subscriptions) == frozenset({"a", "b", "ü"})
