"""Import commands: imported topics are replicated, but invisible to clients until the import is finished."""

from __future__ import annotations

from chronik.metadata import levels
from chronik.metadata.commands.brokers import CLUSTER_DEFAULT, BrokerStatus, UpdateBrokerConfig, UpdateBrokerStatus
from chronik.metadata.commands.cluster import AllocateProducerIds
from chronik.metadata.commands.groups import CommitOffset, OffsetToCommit
from chronik.metadata.commands.imports import (
    IMPORTED_GROUPS_PER_COMMAND_MAX,
    AbortImport,
    BeginImport,
    FinishImport,
    ImportedGroup,
    ImportedOffset,
    ImportGroups,
    ImportTopics,
)
from chronik.metadata.commands.topics import TOPICS_PER_COMMAND_MAX, CreateTopic, PartitionAssignment
from chronik.metadata.delta import RecordChange, diff_images
from chronik.metadata.image import Image
from chronik.metadata.records import CommittedOffset
from chronik.metadata.snapshot import decode_snapshot
from chronik.protocol.errors import ErrorCode
from tests.metadata.metadata_world import (
    MetadataWorld,
    build_assignment,
    build_id,
    encode_verified_snapshot,
    image_records,
)

IMPORT = build_id(77)
OTHER = build_id(78)


def topic(name: str, number: int, *partitions: PartitionAssignment) -> CreateTopic:
    return CreateTopic(build_id(number), name, partitions or (build_assignment(1, 2),), {"retention.ms": "5"}, 1234)


def importing(*topics: CreateTopic, count: int | None = None, world: MetadataWorld | None = None) -> MetadataWorld:
    world = world or MetadataWorld(1, 2)
    world.accept(BeginImport(IMPORT, "a folder", len(topics) if count is None else count, 5000, 99))
    add(world, *topics)
    return world


def add(world: MetadataWorld, *topics: CreateTopic) -> None:
    result = world.accept(ImportTopics(IMPORT, topics, tuple(tuple(7 for _ in each.partitions) for each in topics)))
    assert result.failures == ()


def finish(world: MetadataWorld, *groups: ImportedGroup, **more: dict[str, dict[str, str]]) -> None:
    world.accept(FinishImport(IMPORT, groups, 500, more.get("group_configs", {})))


def test_importing_topic_is_invisible_to_clients() -> None:
    world = importing(topic("orders", 1))
    image = world.image
    assert not image.topics
    assert not image.topics_by_id
    held = image.all_topics_by_id[build_id(1)]
    assert held.importing
    assert held.partitions[0].leader_epoch == 7
    assert world.delta.topics == (RecordChange(None, held),)
    assert image.importing_topics == {"orders": held}


def test_name_and_id_of_importing_topic_are_reserved() -> None:
    world = importing(topic("my.orders", 1))
    assert world.reject(topic("my.orders", 2))[0] is ErrorCode.TOPIC_ALREADY_EXISTS
    assert world.reject(topic("my_orders", 2))[0] is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert world.reject(topic("others", 1))[0] is ErrorCode.INVALID_REQUEST


def test_offset_commit_for_importing_topic_is_rejected() -> None:
    world = importing(topic("orders", 1))
    (failure,) = world.accept(CommitOffset("readers", (OffsetToCommit("orders", 0, 5),), 1)).failures
    assert failure.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_leaders_of_importing_topic_are_elected() -> None:
    world = importing(topic("orders", 1))
    world.accept(UpdateBrokerStatus(1, BrokerStatus.OFFLINE))
    (partition,) = world.image.importing_topics["orders"].partitions
    assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 8, (2,))


def test_finish_import_shows_topics_groups_and_offsets_atomically() -> None:
    world = importing(topic("orders", 1), topic("clicks", 2, build_assignment(1), build_assignment(2)))
    before = {each.id: each for each in world.image.importing_topics.values()}
    offsets = (ImportedOffset("orders", 0, 17, 3, "m", 400, -1), ImportedOffset("clicks", 1, 0))
    finish(world, ImportedGroup("readers", "consumer", offsets), ImportedGroup("idle", "", ()))
    image = world.image
    assert not image.importing_topics
    assert list(image.topics) == ["clicks", "orders"] or sorted(image.topics) == ["clicks", "orders"]
    assert set(image.topics_by_id) == set(before)
    assert not any(each.importing for each in image.topics.values())
    assert {change.old.id: change.old for change in world.delta.topics if change.old} == before
    assert image.offset("readers", "orders", 0) == CommittedOffset(17, 3, "m", 400, -1)
    assert set(image.groups) == {"readers", "idle"}
    assert image.groups["readers"].protocol_type == "consumer"
    assert image.latest_import is not None
    assert image.latest_import.is_finished


def test_finish_import_adds_offsets_to_existing_group() -> None:
    world = MetadataWorld(1, 2)
    world.create("old")
    world.accept(CommitOffset("readers", (OffsetToCommit("old", 0, 3),), 1))
    group = world.image.groups["readers"]
    importing(topic("orders", 1), world=world)
    finish(world, ImportedGroup("readers", "consumer", (ImportedOffset("orders", 0, 17),)))
    assert world.image.groups["readers"] == group
    assert {key: each.offset for key, each in world.image.offsets("readers").items()} == {
        ("old", 0): 3,
        ("orders", 0): 17,
    }


def test_finish_import_is_rejected_while_topics_are_missing() -> None:
    world = importing(topic("orders", 1), count=2)
    assert world.reject(FinishImport(IMPORT, (), 5)) == (
        ErrorCode.INVALID_REQUEST,
        "1 of 2 topics of a folder are there",
    )
    add(world, topic("orders", 1), topic("clicks", 2))
    finish(world)


def test_offsets_of_topics_outside_import_are_rejected() -> None:
    world = importing(topic("orders", 1))
    for each in (ImportedOffset("orders", 1, 5), ImportedOffset("clicks", 0, 5)):
        code, _ = world.reject(FinishImport(IMPORT, (ImportedGroup("readers", "", (each,)),), 5))
        assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_producer_ids_of_import_are_reserved() -> None:
    world = MetadataWorld(1, 2)
    epoch = world.image.brokers[1].epoch
    assert world.accept(BeginImport(IMPORT, "a folder", 0, 5000, 99)).value == 0
    assert world.accept(AllocateProducerIds(1, epoch, 10)).value == 5000
    finish(world)
    assert world.accept(BeginImport(OTHER, "another", 0, 300, 99)).value == 5010
    assert world.accept(BeginImport(OTHER, "another", 0, 300, 99)).value == 5010
    assert world.accept(AllocateProducerIds(1, epoch, 10)).value == 5310


def test_only_one_import_at_a_time_and_each_only_once() -> None:
    world = importing(topic("orders", 1))
    code, message = world.reject(BeginImport(OTHER, "another", 1, 0, 5))
    assert (code, message) == (
        ErrorCode.INVALID_REQUEST,
        "a folder is being imported: go on with that one, or give it up",
    )
    assert world.reject(FinishImport(OTHER, (), 5))[0] is ErrorCode.RESOURCE_NOT_FOUND
    finish(world)
    assert world.reject(BeginImport(IMPORT, "a folder", 1, 0, 5))[0] is ErrorCode.DUPLICATE_RESOURCE
    world.accept(BeginImport(OTHER, "another", 1, 0, 5))


def test_abort_import_removes_topics_in_steps() -> None:
    world = MetadataWorld(1, 2)
    world.create("old")
    world.accept(BeginImport(IMPORT, "a folder", TOPICS_PER_COMMAND_MAX + 5, 0, 99))
    for first in range(1, TOPICS_PER_COMMAND_MAX + 6, 201):
        add(world, *(topic(f"t{n}", n) for n in range(first, min(first + 201, TOPICS_PER_COMMAND_MAX + 6))))
    assert world.accept(AbortImport(IMPORT)).value == 5
    assert world.image.latest_import is not None
    assert world.accept(AbortImport(IMPORT)).value == 0
    assert world.image.latest_import is None
    assert [each.name for each in world.image.all_topics_by_id.values()] == ["old"]
    assert all(change.deleted for change in world.delta.topics)


def groups_of(topic: str, *sizes: int) -> tuple[ImportedGroup, ...]:
    """Return groups g0, g1, … with the given numbers of offsets."""
    return tuple(
        ImportedGroup(f"g{number}", "consumer", tuple(ImportedOffset(topic, each, 10 + each) for each in range(size)))
        for number, size in enumerate(sizes)
    )


def large_import(partitions: int) -> MetadataWorld:
    """Return a world with an import of one topic, at the highest feature level."""
    world = MetadataWorld(1, 2, level=levels.HIGHEST)
    return importing(topic("orders", 1, *(build_assignment(1) for _ in range(partitions))), world=world)


def test_imported_groups_are_stored_before_the_topics_are_visible() -> None:
    world = large_import(2)
    groups = groups_of("orders", 2, 1, 0)
    world.accept(ImportGroups(IMPORT, groups, 500))
    assert not world.image.topics
    assert set(world.image.groups) == {"g0", "g1", "g2"}
    once = image_records(world.image)
    world.accept(ImportGroups(IMPORT, groups, 500))
    assert image_records(world.image) == once, "repeating the command must not change anything"
    finish(world)
    assert [each.offset for each in world.image.offsets("g0").values()] == [10, 11]


def test_imported_groups_are_limited_per_command() -> None:
    world = large_import(IMPORTED_GROUPS_PER_COMMAND_MAX)
    world.accept(ImportGroups(IMPORT, groups_of("orders", IMPORTED_GROUPS_PER_COMMAND_MAX - 1), 500))
    code, message = world.reject(ImportGroups(IMPORT, groups_of("orders", IMPORTED_GROUPS_PER_COMMAND_MAX), 500))
    assert (code, message) == (ErrorCode.INVALID_REQUEST, "more than 2000 groups and offsets in one command")


def test_imported_groups_with_offsets_of_another_topic_are_rejected() -> None:
    world = large_import(1)
    for groups in (groups_of("orders", 2), groups_of("clicks", 1)):
        assert world.reject(ImportGroups(IMPORT, groups, 500))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.reject(ImportGroups(OTHER, groups_of("orders", 1), 500))[0] is ErrorCode.RESOURCE_NOT_FOUND


def test_abort_import_removes_only_its_offsets_and_groups() -> None:
    world = MetadataWorld(1, 2, level=levels.HIGHEST)
    world.create("old")
    world.accept(CommitOffset("g0", (OffsetToCommit("old", 0, 3),), 1))
    before = image_records(world.image)
    importing(topic("orders", 1, *(build_assignment(1) for _ in range(1500))), topic("clicks", 2), world=world)
    for number, group in enumerate(groups_of("orders", 1500, 1500, 1500)):
        world.accept(ImportGroups(IMPORT, (group,), 500 + number))
    world.accept(ImportGroups(IMPORT, groups_of("clicks", 1), 500))
    left = [world.accept(AbortImport(IMPORT)).value for _ in range(3)]
    assert left == [1, 1, 0], "2,000 offsets a command"
    after = image_records(world.image)
    assert [each for each in range(len(after)) if after[each] != before[each]] == [1], "only producer ids may differ"


def test_import_keeps_existing_configs() -> None:
    world = MetadataWorld(1, 2)
    world.accept(UpdateBrokerConfig(CLUSTER_DEFAULT, {"a": "1"}))
    importing(topic("orders", 1), world=world)
    groups = {"readers": {"consumer.session.timeout.ms": "50000"}}
    world.accept(FinishImport(IMPORT, (), 5, groups, {"a": "2", "b": "3"}))
    assert world.image.broker_configs[CLUSTER_DEFAULT] == {"a": "1", "b": "3"}
    assert world.image.group_configs == groups


def test_import_is_part_of_snapshot_and_delta() -> None:
    world = importing(topic("orders", 1), topic("clicks", 2))
    world.create("old")
    restored = decode_snapshot(encode_verified_snapshot(world.image))
    assert image_records(restored) == image_records(world.image) == image_records(world.replay())
    assert len(diff_images(Image(), restored).topics) == 3
    finish(world)
    assert len(diff_images(restored, world.image).topics) == 2
    assert image_records(decode_snapshot(encode_verified_snapshot(world.image))) == image_records(world.image)
