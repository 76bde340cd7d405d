"""The plan of an import, and the reasons why a cluster cannot accept it."""

from __future__ import annotations

from typing import Any

from chronik.metadata.commands.groups import CommitOffset, OffsetToCommit
from chronik.metadata.commands.imports import BeginImport, FinishImport
from chronik.metadata.image import Image
from chronik.metadata.records import Topic
from chronik.migration.import_plan import build_import_plan, find_import_obstacles
from chronik.migration.source import list_visible_topics
from tests.metadata.metadata_world import MetadataWorld, build_assignment, build_id
from tests.migration.memory_logs import MemoryLog, build_batch


class MemorySource:
    """An import source with logs in memory."""

    name = "a folder"
    id = build_id(99)

    def __init__(self, image: Image, *, is_backup: bool = False) -> None:
        self.image = image
        self.is_backup = is_backup

    def topics(self) -> list[Topic]:
        return list_visible_topics(self.image)

    def log(self, topic: Topic, partition: int) -> MemoryLog:
        return MemoryLog([build_batch(0, 5)], producer_ids=40)

    def close(self) -> None: ...


def source(**options: Any) -> MemorySource:
    world = MetadataWorld(1)
    world.create("orders", build_assignment(1), build_assignment(1), number=1)
    world.create("my.clicks", number=2)
    world.accept(CommitOffset("readers", (OffsetToCommit("orders", 0, 3), OffsetToCommit("orders", 1, 9)), 5))
    return MemorySource(world.image, **options)


def test_plan_contains_topics_groups_and_offsets() -> None:
    plan = build_import_plan(source())
    assert ([topic.name for topic in plan.topics], plan.partition_count) == (["my.clicks", "orders"], 3)
    (group,) = plan.groups
    assert [each.offset for each in group.offsets] == [3, 5], "offsets are limited to the imported records"
    assert (plan.total_offsets, plan.producer_ids, plan.offset_count) == (15, 40, 2)


def test_empty_cluster_accepts_import() -> None:
    assert find_import_obstacles(build_import_plan(source()), source(), MetadataWorld(1).image) == []


def test_existing_topic_names_and_ids_are_reported() -> None:
    world = MetadataWorld(1)
    world.create("orders", number=7)
    world.create("my_clicks", number=8)
    world.create("others", number=2)
    assert find_import_obstacles(build_import_plan(source()), source(), world.image) == [
        "topics with these names already exist: orders",
        "topics with the same ids as these already exist: my.clicks",
        "topic names must not differ only in '.' and '_': my.clicks and my_clicks",
    ]


def test_backup_can_only_be_restored_into_empty_cluster() -> None:
    world = MetadataWorld(1)
    world.accept(BeginImport(build_id(1), "another", 0, 0, 1))
    world.accept(FinishImport(build_id(1), (), 1))
    backup = source(is_backup=True)
    assert find_import_obstacles(build_import_plan(backup), backup, world.image) == []
    world.create("own")
    assert find_import_obstacles(build_import_plan(backup), backup, world.image) == [
        "a backup can only be restored into an empty cluster, and this one has own"
    ]


def test_second_import_is_rejected_while_another_is_in_progress() -> None:
    world = MetadataWorld(1)
    world.accept(BeginImport(build_id(1), "another", 1, 0, 1))
    (message,) = find_import_obstacles(build_import_plan(source()), source(), world.image)
    assert message.startswith("an import of another is in progress")
    world = MetadataWorld(1)
    world.accept(BeginImport(MemorySource.id, "a folder", 1, 0, 1))
    assert find_import_obstacles(build_import_plan(source()), source(), world.image) == []
