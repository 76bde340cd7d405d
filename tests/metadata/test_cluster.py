"""Cluster-wide commands, node commands from level 3 on, and the decoding and ordering of commands."""

from __future__ import annotations

import typing

import msgspec
import pytest

from chronik.errors import InvariantError
from chronik.limits import CLUSTER_MEMBERS_MAX
from chronik.metadata import hashing, levels
from chronik.metadata.apply import HANDLERS, apply, skip_entry
from chronik.metadata.commands.brokers import BrokerStatus, RegisterBroker, UpdateBrokerStatus
from chronik.metadata.commands.cluster import (
    AddNode,
    AllocateProducerIds,
    CreateCluster,
    RemoveNode,
    SetFeatureLevel,
    UpdateNode,
)
from chronik.metadata.commands.envelope import Command, Envelope, UnknownCommandError, decode_command, encode_command
from chronik.metadata.commands.partitions import Reassignment, ReassignPartitions
from chronik.metadata.commands.topics import CreatePartitions, UpdateTopicConfig
from chronik.metadata.handlers.cluster import FEATURES_MAX, NODES_MAX
from chronik.metadata.image import HASHES_KEPT, Image
from chronik.metadata.records import NodeRecord
from chronik.metadata.snapshot import CHUNK_RECORDS, decode_snapshot
from chronik.protocol.errors import ErrorCode

from .metadata_world import NODE_INCARNATION, MetadataWorld, build_assignment, build_id, encode_verified_snapshot

ONLINE, OFFLINE, MAINTENANCE = BrokerStatus.ONLINE, BrokerStatus.OFFLINE, BrokerStatus.MAINTENANCE


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
    assert len(kinds) == 52
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


def register(world: MetadataWorld, broker: int, life: int = 0) -> None:
    name = f"host{broker}"
    life_id = build_id(1000 * (life + 1) + broker)
    world.accept(RegisterBroker(broker, name, 9092, None, life_id, build_id(broker), levels=(1, levels.HIGHEST)))


def bootstrapped(*brokers: int, level: int = levels.DYNAMIC_MEMBERSHIP_LEVEL) -> MetadataWorld:
    """Return a bootstrapped cluster in which all nodes are voters."""
    world = MetadataWorld()
    if level > levels.FIRST_LEVEL:
        world.accept(SetFeatureLevel(levels.FEATURE_NAME, level))
    for node in brokers:
        world.accept(AddNode(node, "h", 5000 + node))
    world.accept(CreateCluster("c", 1))
    for broker in brokers:
        register(world, broker)
    return world


def status(world: MetadataWorld, broker: int) -> BrokerStatus:
    return world.image.brokers[broker].status


def test_registration_of_unknown_node_is_rejected() -> None:
    world = bootstrapped(1, 2, 3)
    unknown_node = RegisterBroker(4, "host4", 9092, None, build_id(4), build_id(4), levels=(1, levels.HIGHEST))
    code, message = world.reject(unknown_node)
    assert code is ErrorCode.INVALID_REGISTRATION
    assert message == "node 4 does not belong to this cluster: chronik cluster add-node lets it in"
    world.accept(AddNode(4, "h", 5004, voter=False))
    world.accept(unknown_node)
    world.accept(RemoveNode(4))
    assert 4 not in world.image.brokers
    assert world.reject(unknown_node)[0] is ErrorCode.INVALID_REGISTRATION


def test_any_node_can_register_before_bootstrap_or_below_level_3() -> None:
    register(bootstrapped(1, 2, 3, level=2), 4)
    world = MetadataWorld()
    world.accept(SetFeatureLevel(levels.FEATURE_NAME, levels.DYNAMIC_MEMBERSHIP_LEVEL))
    world.accept(AddNode(1, "h", 5001))
    register(world, 2)


def test_standalone_node_can_register() -> None:
    world = MetadataWorld()
    world.accept(SetFeatureLevel(levels.FEATURE_NAME, levels.DYNAMIC_MEMBERSHIP_LEVEL))
    world.accept(CreateCluster("c", 1))
    register(world, 1)


def test_update_node_changes_only_given_fields() -> None:
    world = bootstrapped(1, 2, 3)
    world.accept(UpdateNode(2, draining=True))
    world.accept(UpdateNode(2, voter=False))
    world.accept(UpdateNode(2, "g", 7))
    assert world.image.nodes[2] == NodeRecord(2, "g", 7, voter=False, draining=True)
    world.accept(AddNode(2, "h", 8, voter=True))
    assert world.image.nodes[2] == NodeRecord(2, "h", 8, voter=True, draining=True)
    world.accept(UpdateNode(2, draining=True))
    assert not world.delta
    assert world.reject(UpdateNode(9, draining=True))[0] is ErrorCode.VOTER_NOT_FOUND
    encode_verified_snapshot(world.image)


def test_peer_address_of_another_node_is_rejected() -> None:
    world = bootstrapped(1, 2, 3)
    for command in (AddNode(4, "h", 5001), UpdateNode(2, port=5001)):
        assert world.reject(command) == (ErrorCode.INVALID_REQUEST, "h:5001 is the address of node 1")


def test_last_intended_voter_cannot_be_removed() -> None:
    world = bootstrapped(1, 2)
    world.accept(UpdateNode(1, voter=False))
    for command in (UpdateNode(2, voter=False), AddNode(2, "h", 5002, voter=False), RemoveNode(2)):
        expected = ErrorCode.POLICY_VIOLATION, "without node 2 nobody would be meant to vote"
        assert world.reject(command) == expected
    world.accept(RemoveNode(1))


def test_node_with_replicas_cannot_be_removed() -> None:
    world = bootstrapped(1, 2, 3)
    topic = world.create("t", build_assignment(1, 2), build_assignment(2, 3), build_assignment(3, 1))
    code, message = world.reject(RemoveNode(3))
    assert code is ErrorCode.POLICY_VIOLATION
    assert message == "node 3 holds replicas of 2 partitions: move them to other nodes first"
    world.accept(ReassignPartitions((Reassignment(topic.id, 1, (2, 1)), Reassignment(topic.id, 2, (2, 1)))))
    assert world.reject(RemoveNode(3))[0] is ErrorCode.POLICY_VIOLATION, (
        "the replica stays until the others are in sync"
    )
    below = bootstrapped(1, 2, 3, level=2)
    below.create("t", build_assignment(3, 1))
    below.accept(RemoveNode(3))


def test_number_of_nodes_is_limited_by_metadata_log_members() -> None:
    world = bootstrapped(*range(CLUSTER_MEMBERS_MAX))
    code, message = world.reject(AddNode(CLUSTER_MEMBERS_MAX, "h", 1))
    assert (code, message) == (ErrorCode.INVALID_REQUEST, f"there are {CLUSTER_MEMBERS_MAX} nodes already")
    world.accept(AddNode(0, "h", 1))


def test_drained_broker_hands_over_leadership_and_stays_in_sync() -> None:
    world = bootstrapped(1, 2, 3)
    world.create("t", build_assignment(1, 2), build_assignment(2, 3), build_assignment(1, 3, isr=(1,)))
    world.accept(UpdateNode(1, draining=True))
    assert status(world, 1) is MAINTENANCE
    assert [partition.leader for partition in world.image.topics["t"].partitions] == [2, 2, 1]
    assert world.partition("t").isr == (1, 2)
    world.accept(UpdateNode(1, draining=False))
    assert status(world, 1) is ONLINE
    assert world.partition("t").leader == 2, "leadership returns with the next preferred election"


def test_drained_broker_stays_drained_after_restart() -> None:
    world = bootstrapped(1, 2, 3)
    world.create("t", build_assignment(1, 2))
    world.accept(UpdateNode(1, draining=True))
    register(world, 1, life=1)
    assert status(world, 1) is MAINTENANCE
    world.accept(UpdateBrokerStatus(1, OFFLINE))
    assert status(world, 1) is OFFLINE
    world.accept(UpdateNode(1, draining=False))
    world.accept(UpdateNode(1, draining=True))
    assert status(world, 1) is OFFLINE, "an offline broker stays offline"
    world.accept(UpdateBrokerStatus(1, ONLINE))
    assert status(world, 1) is MAINTENANCE
    assert world.partition("t").leader == 2


def test_node_below_level_3_has_hash_of_version_0_2_0() -> None:
    as_it_was = (1, "h", 5001, True)
    assert hashing.compute_node_hash(NodeRecord(*as_it_was)) == hashing.record_hash(hashing.NODE, as_it_was)
    assert hashing.compute_node_hash(NodeRecord(*as_it_was, draining=True)) == hashing.record_hash(
        hashing.NODE, (*as_it_was, True)
    )


def test_first_and_latest_registration_times_are_stored() -> None:
    world = bootstrapped()
    for life, time_ms in ((0, 100), (1, 200)):
        life_id = build_id(1000 * (life + 1))
        world.accept(RegisterBroker(1, "h", 1, None, life_id, build_id(1), levels=(1, levels.HIGHEST), time_ms=time_ms))
    broker = world.image.brokers[1]
    assert (broker.first_registered_ms, broker.registered_ms) == (100, 200)
    encode_verified_snapshot(world.image)


def test_registration_time_before_bootstrap_is_bootstrap_time() -> None:
    for level, time_ms in ((2, -1), (3, 77)):
        world = MetadataWorld()
        register(world, 1)
        world.accept(SetFeatureLevel(levels.FEATURE_NAME, level))
        world.accept(CreateCluster("c", 77))
        broker = world.image.brokers[1]
        assert (broker.first_registered_ms, broker.registered_ms) == (time_ms, time_ms)
        encode_verified_snapshot(world.image)


def test_time_of_last_topic_change_is_stored() -> None:
    world = bootstrapped(1, 2)
    topic = world.create("t", build_assignment(1, 2))
    assert (topic.created_ms, topic.changed_ms) == (1234, -1)
    world.accept(UpdateTopicConfig(topic.id, {"a": "1"}, time_ms=2000))
    assert world.image.topics["t"].changed_ms == 2000
    world.accept(UpdateTopicConfig(topic.id, {"a": "1"}, time_ms=2500))
    assert world.image.topics["t"].changed_ms == 2000, "a command without effect must not change the time"
    world.accept(CreatePartitions(topic.id, 1, (build_assignment(2, 1),), time_ms=3000))
    assert world.image.topics["t"].changed_ms == 3000
    world.accept(UpdateTopicConfig(topic.id, {"a": "2"}))
    assert world.image.topics["t"].changed_ms == 3000, "commands of older versions have no time"
    assert decode_snapshot(encode_verified_snapshot(world.image)).topics == world.image.topics


def test_change_time_of_large_topic_survives_snapshot() -> None:
    world = bootstrapped(1, 2)
    topic = world.create("t", *[build_assignment(1, 2)] * (CHUNK_RECORDS + 1))
    world.accept(UpdateTopicConfig(topic.id, {"a": "1"}, time_ms=2000))
    assert decode_snapshot(encode_verified_snapshot(world.image)).topics == world.image.topics
