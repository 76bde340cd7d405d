"""A backup is checked by the code that a restore runs."""

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
from tests.moving.test_a_plan_says_what_cannot_come import MemorySource


def store_of(groups: int, partitions: int, metadata: str | None = None) -> MemorySource:
    """A store with a topic of so many partitions, for which each of so many groups has committed."""
    world = World(1, level=levels.HIGHEST)
    world.create("orders", *(assignment(1) for _ in range(partitions)), number=1)
    offsets = tuple(OffsetToCommit("orders", number, number % 5, metadata=metadata) for number in range(partitions))
    for number in range(groups):
        world.accept(CommitOffset(f"readers {number}", offsets, 5))
    return MemorySource(world.image, is_backup=True)


def test_rehearsal_accepts_offsets_and_configs_that_fit_no_single_command() -> None:
    source = store_of(groups=3, partitions=IMPORTED_GROUPS_PER_COMMAND_MAX, metadata="m" * 500)
    rehearse(source, plan_of(source))


@pytest.mark.slow
def test_rehearsal_accepts_more_offsets_than_one_command_takes_at_a_lower_level() -> None:
    source = store_of(groups=IMPORTED_OFFSETS_MAX // 1000 + 1, partitions=1000)
    plan = plan_of(source)
    assert plan.offset_count > IMPORTED_OFFSETS_MAX
    rehearse(source, plan)
    assert refusals(plan, source, World(1, level=levels.HIGHEST).image) == []
    assert refusals(plan, source, World(1, level=levels.IMPORTED_GROUPS - 1).image) == [
        "more than 100,000 committed offsets (101,000) need chronik.version 5, and the cluster is at 4: "
        "raise it with chronik cluster upgrade"
    ]


def test_rehearsal_rejects_a_topic_config_that_this_version_does_not_know() -> None:
    source = store_of(groups=1, partitions=1)
    world = World(1)
    world.create("orders", number=1)
    world.accept(UpdateTopicConfig(some_id(1), {"from.the.future": "1"}))
    source.image = world.image
    with pytest.raises(CannotMove, match=r"cannot be restored: .*from.the.future"):
        rehearse(source, plan_of(source))


def test_rehearsal_rejects_what_fits_into_no_request() -> None:
    world = World(1)
    world.create("orders", number=1)
    for number in range(600):
        world.accept(UpdateGroupConfig(f"group {number}", {"a": "5" * 30_000, "b": "5" * 30_000}))
    source = MemorySource(world.image, is_backup=True)
    with pytest.raises(CannotMove, match=r"cannot be restored: a request of 36,.* where a broker accepts 33,554,432"):
        rehearse(source, plan_of(source))


def test_rehearsal_rejects_a_text_that_is_too_long_for_the_protocol() -> None:
    world = World(1)
    world.create("orders", number=1)
    world.accept(UpdateTopicConfig(some_id(1), {"retention.ms": "5" * 32_768}))
    source = MemorySource(world.image, is_backup=True)
    with pytest.raises(CannotMove, match=r"cannot be restored: .* has 32768 bytes, more than 32767"):
        rehearse(source, plan_of(source))


def test_group_requests_split_large_groups_and_join_small_ones() -> None:
    offsets = tuple(ImportedOffset("orders", number, number) for number in range(IMPORTED_GROUPS_PER_COMMAND_MAX))
    large, small = ImportedGroup("large", "consumer", offsets), ImportedGroup("small", "consumer", ())
    requests = list(group_requests(store_of(0, 1), [small, large, small]))
    assert [[(each.group_id, len(each.offsets)) for each in request.groups] for request in requests] == [
        [("small", 0), ("large", 1997)],
        [("large", 3), ("small", 0)],
    ]


def test_group_requests_are_limited_by_their_characters() -> None:
    metadata = "m" * (GROUPS_REQUEST_CHARACTERS_MAX // 3)
    offsets = tuple(ImportedOffset("orders", number, number, metadata=metadata) for number in range(4))
    requests = list(group_requests(store_of(0, 1), [ImportedGroup("large", "consumer", offsets)]))
    assert [[len(group.offsets) for group in request.groups] for request in requests] == [[2], [2]]


def test_resumed_import_sends_only_the_offsets_that_the_cluster_lacks() -> None:
    source = store_of(groups=2, partitions=3)
    image = store_of(groups=1, partitions=3).image
    plan = plan_of(source)
    assert [(group.group_id, len(group.offsets)) for group in absent_groups(plan.groups, image)] == [("readers 1", 3)]


def test_plan_rejects_acls_that_exceed_the_limit_together_with_the_clusters_own() -> None:
    source = store_of(groups=0, partitions=1)
    acls = [Acl(2, f"topic {number}", 3, "User:u", "*", 3, 3) for number in range(ACLS_MAX + 1)]
    plan = plan_of(source)._replace(security=Security({}, acls, {}))
    assert refusals(plan, source, World(1, level=levels.HIGHEST).image) == [
        "the cluster would have 100,001 ACLs, and may have 100,000"
    ]
    at_limit = plan._replace(security=Security({}, acls[:-1], {}))
    assert refusals(at_limit, source, World(1, level=levels.HIGHEST).image) == []
