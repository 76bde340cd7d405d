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
from chronik.migration.dry_run import dry_run_restore
from chronik.migration.import_plan import (
    GROUPS_REQUEST_CHARACTERS_MAX,
    build_group_requests,
    build_import_plan,
    find_import_obstacles,
    find_missing_groups,
)
from chronik.migration.security_import import SecurityMetadata
from chronik.migration.source import MigrationError
from tests.metadata.metadata_world import MetadataWorld, build_assignment, build_id
from tests.migration.test_import_plan import MemorySource


def build_source(groups: int, partitions: int, metadata: str | None = None) -> MemorySource:
    """Return a source with one topic, for each of whose partitions all groups have committed an offset."""
    world = MetadataWorld(1, level=levels.HIGHEST)
    world.create("orders", *(build_assignment(1) for _ in range(partitions)), number=1)
    offsets = tuple(OffsetToCommit("orders", number, number % 5, metadata=metadata) for number in range(partitions))
    for number in range(groups):
        world.accept(CommitOffset(f"readers {number}", offsets, 5))
    return MemorySource(world.image, is_backup=True)


def test_dry_run_accepts_offsets_that_need_several_commands() -> None:
    source = build_source(groups=3, partitions=IMPORTED_GROUPS_PER_COMMAND_MAX, metadata="m" * 500)
    dry_run_restore(source, build_import_plan(source))


@pytest.mark.slow
def test_dry_run_accepts_more_offsets_than_lower_level_allows() -> None:
    source = build_source(groups=IMPORTED_OFFSETS_MAX // 1000 + 1, partitions=1000)
    plan = build_import_plan(source)
    assert plan.offset_count > IMPORTED_OFFSETS_MAX
    dry_run_restore(source, plan)
    assert find_import_obstacles(plan, source, MetadataWorld(1, level=levels.HIGHEST).image) == []
    assert find_import_obstacles(plan, source, MetadataWorld(1, level=levels.IMPORTED_GROUPS_LEVEL - 1).image) == [
        "more than 100,000 committed offsets (101,000) need chronik.version 5, and the cluster is at 4: "
        "raise it with chronik cluster upgrade"
    ]


def test_dry_run_rejects_unknown_topic_config() -> None:
    source = build_source(groups=1, partitions=1)
    world = MetadataWorld(1)
    world.create("orders", number=1)
    world.accept(UpdateTopicConfig(build_id(1), {"from.the.future": "1"}))
    source.image = world.image
    with pytest.raises(MigrationError, match=r"cannot be restored: .*from.the.future"):
        dry_run_restore(source, build_import_plan(source))


def test_dry_run_rejects_request_above_size_limit() -> None:
    world = MetadataWorld(1)
    world.create("orders", number=1)
    for number in range(600):
        world.accept(UpdateGroupConfig(f"group {number}", {"a": "5" * 30_000, "b": "5" * 30_000}))
    source = MemorySource(world.image, is_backup=True)
    with pytest.raises(
        MigrationError, match=r"cannot be restored: a request has 36,.* bytes; a broker accepts 33,554,432"
    ):
        dry_run_restore(source, build_import_plan(source))


def test_dry_run_rejects_string_too_long_for_protocol() -> None:
    world = MetadataWorld(1)
    world.create("orders", number=1)
    world.accept(UpdateTopicConfig(build_id(1), {"retention.ms": "5" * 32_768}))
    source = MemorySource(world.image, is_backup=True)
    with pytest.raises(MigrationError, match=r"cannot be restored: .* has 32768 bytes, more than 32767"):
        dry_run_restore(source, build_import_plan(source))


def test_group_requests_split_large_and_combine_small_groups() -> None:
    offsets = tuple(ImportedOffset("orders", number, number) for number in range(IMPORTED_GROUPS_PER_COMMAND_MAX))
    large, small = ImportedGroup("large", "consumer", offsets), ImportedGroup("small", "consumer", ())
    requests = list(build_group_requests(build_source(0, 1), [small, large, small]))
    assert [[(each.group_id, len(each.offsets)) for each in request.groups] for request in requests] == [
        [("small", 0), ("large", 1997)],
        [("large", 3), ("small", 0)],
    ]


def test_group_requests_are_limited_by_size() -> None:
    metadata = "m" * (GROUPS_REQUEST_CHARACTERS_MAX // 3)
    offsets = tuple(ImportedOffset("orders", number, number, metadata=metadata) for number in range(4))
    requests = list(build_group_requests(build_source(0, 1), [ImportedGroup("large", "consumer", offsets)]))
    assert [[len(group.offsets) for group in request.groups] for request in requests] == [[2], [2]]


def test_resumed_import_sends_only_missing_offsets() -> None:
    source = build_source(groups=2, partitions=3)
    image = build_source(groups=1, partitions=3).image
    plan = build_import_plan(source)
    assert [(group.group_id, len(group.offsets)) for group in find_missing_groups(plan.groups, image)] == [
        ("readers 1", 3)
    ]


def test_plan_rejects_more_acls_than_cluster_limit() -> None:
    source = build_source(groups=0, partitions=1)
    acls = [Acl(2, f"topic {number}", 3, "User:u", "*", 3, 3) for number in range(ACLS_MAX + 1)]
    plan = build_import_plan(source)._replace(security=SecurityMetadata({}, acls, {}))
    assert find_import_obstacles(plan, source, MetadataWorld(1, level=levels.HIGHEST).image) == [
        "the cluster would have 100,001 ACLs; the limit is 100,000"
    ]
    at_limit = plan._replace(security=SecurityMetadata({}, acls[:-1], {}))
    assert find_import_obstacles(at_limit, source, MetadataWorld(1, level=levels.HIGHEST).image) == []
