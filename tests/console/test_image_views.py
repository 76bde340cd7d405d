from __future__ import annotations

from chronik.console.image_views import describe_group, describe_image
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.groups import CommitOffset, CreateConsumerGroup, OffsetToCommit
from tests.metadata.metadata_world import MetadataWorld, build_assignment


def world_with_offsets() -> MetadataWorld:
    world = MetadataWorld(2, 1)
    world.create("orders", build_assignment(1), build_assignment(1))
    offsets = (OffsetToCommit("orders", 1, 7), OffsetToCommit("orders", 0, 5, leader_epoch=3, metadata="note"))
    world.accept(CommitOffset("readers", offsets, commit_time_ms=1234))
    return world


def test_image_view_is_equal_at_same_index() -> None:
    world = world_with_offsets()
    world.accept(UpdateBrokerStatus(2, BrokerStatus.OFFLINE))
    view = describe_image(world.image)
    assert view == describe_image(world.replay())
    assert view["applied_index"] == len(world.envelopes)
    assert [(broker["id"], broker["status"]) for broker in view["brokers"]] == [(1, "online"), (2, "offline")]
    assert (view["topics"], view["groups"]) == (1, 1)


def test_recent_hashes_end_with_current_hash() -> None:
    world = MetadataWorld(1)
    before = describe_image(world.image)
    world.create("orders")
    after = describe_image(world.image)
    assert after["recent_hashes"][-1] == [after["applied_index"], after["state_hash"]]
    assert [before["applied_index"], before["state_hash"]] in after["recent_hashes"]
    assert before["state_hash"] != after["state_hash"]
    assert len(after["state_hash"]) == 32


def test_group_view_contains_all_committed_offsets() -> None:
    world = world_with_offsets()
    view = describe_group(world.image, "readers")
    assert view is not None
    assert view["state"] == world.image.groups["readers"].state
    assert list(view["offsets"]) == [
        {"topic": "orders", "partition": 0, "offset": 5, "leader_epoch": 3, "metadata": "note", "commit_time_ms": 1234},
        {"topic": "orders", "partition": 1, "offset": 7, "leader_epoch": -1, "metadata": None, "commit_time_ms": 1234},
    ]


def test_group_view_without_offsets_is_empty_and_unknown_group_is_none() -> None:
    world = MetadataWorld(1)
    world.accept(CreateConsumerGroup("new", "consumer", 1234))
    view = describe_group(world.image, "new")
    assert view is not None
    assert (view["protocol_type"], list(view["offsets"]), view["members"]) == ("consumer", [], [])
    assert describe_group(world.image, "other") is None
