"""Cluster-wide commands and the decoding and ordering of commands."""

from __future__ import annotations

import typing

import msgspec
import pytest

from chronik.errors import InvariantError
from chronik.metadata.apply import HANDLERS, apply, skip_entry
from chronik.metadata.commands.cluster import AddNode, AllocateProducerIds, CreateCluster, RemoveNode, SetFeatureLevel
from chronik.metadata.commands.envelope import Command, Envelope, UnknownCommandError, decode_command, encode_command
from chronik.metadata.handlers.cluster import FEATURES_MAX
from chronik.metadata.handlers.nodes import NODES_MAX
from chronik.metadata.image import HASHES_KEPT, Image
from chronik.metadata.records import NodeRecord
from chronik.protocol.errors import ErrorCode

from .metadata_world import NODE_INCARNATION, MetadataWorld


def test_cluster_id_can_be_set_only_once() -> None:
    world = MetadataWorld()
    assert world.image.cluster_id == ""
    world.accept(CreateCluster("first", 1))
    assert world.reject(CreateCluster("second", 2))[0] is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert world.image.cluster_id == "first"


def test_nodes_can_be_added_changed_and_removed() -> None:
    world = MetadataWorld()
    world.accept(AddNode(1, "a", 5001))
    assert world.delta.nodes == ((None, NodeRecord(1, "a", 5001, True)),)
    world.accept(AddNode(1, "a", 5001))
    assert not world.delta
    world.accept(AddNode(1, "b", 5001, voter=False))
    assert world.image.nodes == {1: NodeRecord(1, "b", 5001, False)}
    world.accept(RemoveNode(1))
    assert world.image.nodes == {}
    assert world.reject(RemoveNode(1))[0] is ErrorCode.VOTER_NOT_FOUND


def test_number_of_nodes_and_features_is_limited() -> None:
    world = MetadataWorld()
    for number in range(NODES_MAX):
        world.accept(AddNode(number, "h", 1))
    assert world.reject(AddNode(NODES_MAX, "h", 1))[0] is ErrorCode.INVALID_REQUEST
    for number in range(FEATURES_MAX):
        world.accept(SetFeatureLevel(f"f{number}", 1))
    assert world.reject(SetFeatureLevel("more", 1))[0] is ErrorCode.FEATURE_UPDATE_FAILED


def test_feature_level_can_be_set_and_removed() -> None:
    world = MetadataWorld()
    world.accept(SetFeatureLevel("metadata.version", 3))
    assert world.delta.features == ("metadata.version",)
    assert world.image.features == {"metadata.version": 3}
    world.accept(SetFeatureLevel("metadata.version", 0))
    assert world.image.features == {}
    assert world.reject(SetFeatureLevel("", 1))[0] is ErrorCode.FEATURE_UPDATE_FAILED


def test_producer_ids_are_allocated_once_to_current_broker_epoch() -> None:
    world = MetadataWorld()
    assert world.reject(AllocateProducerIds(1, 1, 10))[0] is ErrorCode.BROKER_ID_NOT_REGISTERED
    epoch = world.register(1)
    assert world.accept(AllocateProducerIds(1, epoch, 1000)).value == 0
    assert world.accept(AllocateProducerIds(1, epoch, 1000)).value == 1000
    assert world.image.next_producer_id == 2000
    world.register(1, incarnation_number=1)
    assert world.reject(AllocateProducerIds(1, epoch, 1000))[0] is ErrorCode.STALE_BROKER_EPOCH


def test_every_command_has_handler_and_unique_tag() -> None:
    kinds = typing.get_args(Command)
    assert len(kinds) == 47
    assert set(HANDLERS) == set(kinds)
    tags = [kind.__struct_config__.tag for kind in kinds]
    assert len(set(tags)) == len(tags)


@pytest.mark.parametrize(
    "data",
    [
        msgspec.msgpack.encode([1, NODE_INCARNATION, 1, 0, [99, "from the future"]]),
        msgspec.msgpack.encode([1, NODE_INCARNATION, 1, 0, [3, 1, "a field from the future"]]),
        msgspec.msgpack.encode([1, NODE_INCARNATION, 1, 0, [3, 1], "a field from the future"]),
        msgspec.msgpack.encode([1, NODE_INCARNATION, 1, 0, [3]]),
        msgspec.msgpack.encode([1, NODE_INCARNATION, 1, 0, [3, -1]]),
        msgspec.msgpack.encode([1, NODE_INCARNATION, 0, 0, [3, 1]]),
        msgspec.msgpack.encode([1, b"short", 1, 0, [3, 1]]),
        b"",
        b"\xc1",
    ],
)
def test_command_with_unknown_tag_or_field_is_rejected(data: bytes) -> None:
    with pytest.raises(UnknownCommandError):
        decode_command(data)


def test_commands_must_be_applied_in_log_order() -> None:
    image = Image()
    envelope = Envelope(1, NODE_INCARNATION, 1, 0, AddNode(1, "h", 1))
    for wrong in (0, 2):
        with pytest.raises(InvariantError):
            apply(image, envelope, wrong)
    skip_entry(image, 1)
    apply(image, envelope, 2)
    assert image.applied_index == 2
    assert encode_command(envelope) == encode_command(decode_command(encode_command(envelope)))


def test_recent_state_hashes_are_kept_by_index() -> None:
    world = MetadataWorld()
    for number in range(HASHES_KEPT + 10):
        world.accept(AddNode(1, "h", number))
    recent = world.image.recent_hashes()
    assert len(recent) == HASHES_KEPT
    assert recent[-1] == (world.image.applied_index, world.image.state_hash)
    assert [index for index, _ in recent] == list(range(11, HASHES_KEPT + 11))
    assert len({value for _, value in recent}) == HASHES_KEPT
