"""The dry run of a restore, and the requests of an import."""

from __future__ import annotations

import pytest

from chronik.limits import ACLS_MAX
from chronik.metadata import levels
from chronik.metadata.commands.groups import CommitOffset, OffsetToCommit, UpdateGroupConfig
from chronik.metadata.commands.imports import (
    IMPORTED_GROUPS_PER_COMMAND_MAX,
    IMPORTED_OFFSETS_MAX,
    ImportedGroup,
    ImportedOffset,
)
from chronik.metadata.commands.topics import UpdateTopicConfig
from chronik.metadata.records import Acl
from chronik.moving.plan import plan_of, refusals
from chronik.moving.rehearsal import rehearse
from chronik.moving.requests import GROUPS_REQUEST_CHARACTERS_MAX, absent_groups, group_requests
from chronik.moving.security import Security
from chronik.moving.source import CannotMove
from tests.metadata.world import World, assignment, some_id
from tests.moving.test_import_plan import MemorySource


def build_source(groups: int, partitions: int, metadata: str | None = None) -> MemorySource:
    """Return a source with one topic, for each of whose partitions all groups have committed an offset."""
    world = World(1, level=levels.HIGHEST)
    world.create("orders", *(assignment(1) for _ in range(partitions)), number=1)
    offsets = tuple(OffsetToCommit("orders", number, number % 5, metadata=metadata) for number in range(partitions))
    for number in range(groups):
        world.accept(CommitOffset(f"readers {number}", offsets, 5))
    return MemorySource(world.image, is_backup=True)


def test_dry_run_accepts_offsets_that_need_several_commands() -> None:
    source = build_source(groups=3, partitions=IMPORTED_GROUPS_PER_COMMAND_MAX, metadata="m" * 500)
    rehearse(source, plan_of(source))


@pytest.mark.slow
def test_dry_run_accepts_more_offsets_than_lower_level_allows() -> None:
    source = build_source(groups=IMPORTED_OFFSETS_MAX // 1000 + 1, partitions=1000)
    plan = plan_of(source)
    assert plan.offset_count > IMPORTED_OFFSETS_MAX
    rehearse(source, plan)
    assert refusals(plan, source, World(1, level=levels.HIGHEST).image) == []
    assert refusals(plan, source, World(1, level=levels.IMPORTED_GROUPS - 1).image) == [
        "more than 100,000 committed offsets (101,000) need chronik.version 5, and the cluster is at 4: "
        "raise it with chronik cluster upgrade"
    ]


def test_dry_run_rejects_unknown_topic_config() -> None:
    source = build_source(groups=1, partitions=1)
    world = World(1)
    world.create("orders", number=1)
    world.accept(UpdateTopicConfig(some_id(1), {"from.the.future": "1"}))
    source.image = world.image
    with pytest.raises(CannotMove, match=r"cannot be restored: .*from.the.future"):
        rehearse(source, plan_of(source))


def test_dry_run_rejects_request_above_size_limit() -> None:
    world = World(1)
    world.create("orders", number=1)
    for number in range(600):
        world.accept(UpdateGroupConfig(f"group {number}", {"a": "5" * 30_000, "b": "5" * 30_000}))
    source = MemorySource(world.image, is_backup=True)
    with pytest.raises(CannotMove, match=r"cannot be restored: a request has 36,.* bytes; a broker accepts 33,554,432"):
        rehearse(source, plan_of(source))


def test_dry_run_rejects_string_too_long_for_protocol() -> None:
    world = World(1)
    world.create("orders", number=1)
    world.accept(UpdateTopicConfig(some_id(1), {"retention.ms": "5" * 32_768}))
    source = MemorySource(world.image, is_backup=True)
    with pytest.raises(CannotMove, match=r"cannot be restored: .* has 32768 bytes, more than 32767"):
        rehearse(source, plan_of(source))


def test_group_requests_split_large_and_combine_small_groups() -> None:
    offsets = tuple(ImportedOffset("orders", number, number) for number in range(IMPORTED_GROUPS_PER_COMMAND_MAX))
    large, small = ImportedGroup("large", "consumer", offsets), ImportedGroup("small", "consumer", ())
    requests = list(group_requests(build_source(0, 1), [small, large, small]))
    assert [[(each.group_id, len(each.offsets)) for each in request.groups] for request in requests] == [
        [("small", 0), ("large", 1997)],
        [("large", 3), ("small", 0)],
    ]


def test_group_requests_are_limited_by_size() -> None:
    metadata = "m" * (GROUPS_REQUEST_CHARACTERS_MAX // 3)
    offsets = tuple(ImportedOffset("orders", number, number, metadata=metadata) for number in range(4))
    requests = list(group_requests(build_source(0, 1), [ImportedGroup("large", "consumer", offsets)]))
    assert [[len(group.offsets) for group in request.groups] for request in requests] == [[2], [2]]


def test_resumed_import_sends_only_missing_offsets() -> None:
    source = build_source(groups=2, partitions=3)
    image = build_source(groups=1, partitions=3).image
    plan = plan_of(source)
    assert [(group.group_id, len(group.offsets)) for group in absent_groups(plan.groups, image)] == [("readers 1", 3)]


def test_plan_rejects_more_acls_than_cluster_limit() -> None:
    source = build_source(groups=0, partitions=1)
    acls = [Acl(2, f"topic {number}", 3, "User:u", "*", 3, 3) for number in range(ACLS_MAX + 1)]
    plan = plan_of(source)._replace(security=Security({}, acls, {}))
    assert refusals(plan, source, World(1, level=levels.HIGHEST).image) == [
        "the cluster would have 100,001 ACLs; the limit is 100,000"
    ]
    at_limit = plan._replace(security=Security({}, acls[:-1], {}))
    assert refusals(at_limit, source, World(1, level=levels.HIGHEST).image) == []
