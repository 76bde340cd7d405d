"""Broker registration, listeners, leader epochs, fencing and ISR changes."""

from __future__ import annotations

from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.brokers import (
    BrokerStatus,
    Endpoint,
    RegisterBroker,
    RemoveBroker,
    UpdateBrokerConfig,
    UpdateBrokerStatus,
)
from chronik.metadata.commands.cluster import AddNode
from chronik.metadata.commands.envelope import Envelope, encode_command
from chronik.metadata.commands.partitions import (
    AssignPartition,
    IsrChange,
    IsrMember,
    OffsetCheckpoint,
    SetPartitionLeader,
    UpdateISR,
    UpdatePartitionOffset,
)
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.handlers.brokers import BROKERS_MAX
from chronik.metadata.records import Broker, Partition
from chronik.metadata.snapshot import decode_snapshot
from chronik.protocol.errors import ErrorCode
from tests.metadata.metadata_world import (
    NODE,
    NODE_INCARNATION,
    MetadataWorld,
    build_assignment,
    build_id,
    encode_verified_snapshot,
)

OFFLINE, ONLINE, MAINTENANCE = BrokerStatus.OFFLINE, BrokerStatus.ONLINE, BrokerStatus.MAINTENANCE

EARLIER_COMMAND = (
    "9501c410746865206c696665206f66206e6f64650100980a01a5686f737431cd2384c0c410000102030405060708090a0b0c0d0e0f"
    "c41000000000000000000000000000000000c3"
)
EARLIER_HASH = "1ae6c6b163d806cef6287163dfbd3ab4"
"""The state hash computed by commit 1bf886d."""
EARLIER_SNAPSHOT = (
    "9396010101c4101ae6c6b163d806cef6287163dfbd3ab4a00092039801a5686f737431cd2384c0a66f6e6c696e6501c410000102030405"
    "060708090a0b0c0d0e0fc41000000000000000000000000000000000920a9501c410746865206c696665206f66206e6f64650090919201"
    "9500a0019001"
)
"""Written by 1bf886d."""

USUAL = RegisterBroker(1, "host1", 9092, None, bytes(range(16)), bytes(16), True)
INSIDE, OUTSIDE = Endpoint("INTERNAL", "host1", 9092), Endpoint("EXTERNAL", "example.org", 443)


def test_broker_epoch_is_log_index_of_registration() -> None:
    world = MetadataWorld()
    world.accept(AddNode(1, "h", 5001))
    epoch = world.register(1)
    assert epoch == world.image.applied_index == world.image.brokers[1].epoch
    assert world.image.brokers[1].is_online
    (change,) = world.delta.brokers
    assert change.created


def test_repeated_registration_returns_same_broker_epoch() -> None:
    world = MetadataWorld(1)
    epoch = world.image.brokers[1].epoch
    assert world.register(1) == epoch
    assert not world.delta


def test_restarted_sole_replica_leads_in_new_leader_epoch() -> None:
    world = MetadataWorld(1)
    world.create("orders", build_assignment(1), build_assignment(1))
    world.register(1, incarnation_number=1)
    assert world.image.topics["orders"].partitions == (Partition((1,), (1,), 1, 1, 1),) * 2
    assert [change.new for change in world.delta.topics] == [world.image.topics["orders"]]


def test_restarted_broker_leaves_isr_with_other_members() -> None:
    world = MetadataWorld(1, 2, 3)
    world.create("orders", build_assignment(1, 2, 3), build_assignment(2, 1, 3), build_assignment(1, 2, 3, isr=(1,)))
    world.register(1, incarnation_number=1)
    led, followed, alone = world.image.topics["orders"].partitions
    assert led == Partition((1, 2, 3), (2, 3), 2, 1, 1)
    assert followed == Partition((2, 1, 3), (2, 3), 2, 0, 1)
    assert alone == Partition((1, 2, 3), (1,), 1, 1, 1)


def test_durable_restart_keeps_broker_in_isr_with_new_leader_epoch() -> None:
    world = MetadataWorld(1, 2, 3)
    world.create("orders", build_assignment(1, 2, 3), build_assignment(2, 1, 3), build_assignment(2, 1, 3, isr=(2, 3)))
    world.register(1, incarnation_number=1, durable=True)
    led, followed, outside = world.image.topics["orders"].partitions
    assert led == Partition((1, 2, 3), (1, 2, 3), 1, 1, 1)
    assert followed == Partition((2, 1, 3), (2, 1, 3), 2, 0, 1)  # ISR proposals for its earlier incarnation are invalid
    assert outside == Partition((2, 1, 3), (2, 3), 2, 0, 0)


def test_durable_brokers_lead_without_waiting_for_other_killed_brokers() -> None:
    world = MetadataWorld(1, 2, 3)
    world.create("orders", build_assignment(3, 1, 2))
    for broker in (1, 2):
        world.register(broker, incarnation_number=1, durable=True)
    world.accept(UpdateBrokerStatus(3, OFFLINE))
    assert world.partition("orders").leader == 1
    assert world.partition("orders").isr == (1, 2)


def test_durable_flag_is_ignored_with_new_directory_id() -> None:
    world = MetadataWorld(1, 2)
    world.create("orders", build_assignment(1, 2))
    world.register(1, incarnation_number=1, directory_number=77, durable=True)
    assert world.partition("orders") == Partition((1, 2), (2,), 2, 1, 1)


def test_broker_with_new_disk_leaves_its_sole_partitions_offline() -> None:
    world = MetadataWorld(1, 2)
    world.create("orders", build_assignment(1, 2), build_assignment(1, 2, isr=(1,)), build_assignment(2, 1))
    world.register(1, incarnation_number=1, directory_number=77)
    shared, alone, followed = world.image.topics["orders"].partitions
    assert shared == Partition((1, 2), (2,), 2, 1, 1)
    assert alone == Partition((1, 2), (), NO_LEADER, 1, 1)
    assert followed == Partition((2, 1), (2,), 2, 0, 1)
    for status in (OFFLINE, ONLINE):
        world.accept(UpdateBrokerStatus(1, status))
    assert world.partition("orders", 1).leader == NO_LEADER


def test_directory_id_of_another_broker_is_rejected() -> None:
    world = MetadataWorld(1)
    duplicate = RegisterBroker(2, "h", 1, None, build_id(50), build_id(1))
    assert world.reject(duplicate)[0] is ErrorCode.INVALID_REGISTRATION


def test_number_of_brokers_is_limited() -> None:
    world = MetadataWorld(*range(BROKERS_MAX))
    one_more = RegisterBroker(BROKERS_MAX, "h", 1, None, build_id(10**9), build_id(10**9))
    assert world.reject(one_more)[0] is ErrorCode.INVALID_REGISTRATION
    world.register(5, incarnation_number=1)


def test_fencing_shrinks_isr_and_elects_leader_atomically() -> None:
    world = MetadataWorld(1, 2, 3)
    world.create("orders", build_assignment(1, 2, 3), build_assignment(2, 1, 3), build_assignment(1, 2, 3, isr=(1,)))
    world.accept(UpdateBrokerStatus(1, OFFLINE))
    led, followed, alone = world.image.topics["orders"].partitions
    assert led == Partition((1, 2, 3), (2, 3), 2, 1, 1)
    assert followed == Partition((2, 1, 3), (2, 3), 2, 0, 1)
    assert alone == Partition((1, 2, 3), (1,), NO_LEADER, 1, 1)
    assert len(world.delta.topics) == len(world.delta.brokers) == 1
    world.accept(UpdateBrokerStatus(1, ONLINE))
    assert world.partition("orders", 2) == Partition((1, 2, 3), (1,), 1, 2, 2)
    assert world.partition("orders", 0) == led


def test_fencing_a_fenced_broker_changes_nothing() -> None:
    world = MetadataWorld(1)
    world.accept(UpdateBrokerStatus(1, OFFLINE))
    world.accept(UpdateBrokerStatus(1, OFFLINE))
    assert not world.delta


def test_maintenance_moves_leadership_and_keeps_isr() -> None:
    world = MetadataWorld(1, 2)
    world.create("orders", build_assignment(1, 2), build_assignment(1, 2, isr=(1,)))
    world.accept(UpdateBrokerStatus(1, MAINTENANCE))
    assert world.partition("orders", 0) == Partition((1, 2), (1, 2), 2, 1, 1)
    assert world.partition("orders", 1) == Partition((1, 2), (1,), 1, 0, 0)


def test_broker_in_maintenance_leads_partitions_without_other_candidate() -> None:
    world = MetadataWorld(1)
    world.create("orders")
    world.accept(UpdateBrokerStatus(1, OFFLINE))
    world.accept(UpdateBrokerStatus(1, MAINTENANCE))
    assert world.partition("orders").leader == 1
    assert world.partition("orders").leader_epoch == 2


def test_status_update_with_old_broker_epoch_is_rejected() -> None:
    world = MetadataWorld(1)
    old = world.image.brokers[1].epoch
    world.register(1, incarnation_number=1)
    assert world.reject(UpdateBrokerStatus(1, OFFLINE, old))[0] is ErrorCode.STALE_BROKER_EPOCH
    assert world.reject(RemoveBroker(1, old))[0] is ErrorCode.STALE_BROKER_EPOCH
    assert world.reject(UpdateBrokerStatus(9, OFFLINE))[0] is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_removing_broker_removes_its_configs() -> None:
    world = MetadataWorld(1, 2)
    world.create("orders", build_assignment(1, 2))
    world.accept(UpdateBrokerConfig(1, {"a": "1"}))
    world.accept(RemoveBroker(1))
    assert list(world.image.brokers) == [2]
    assert world.image.broker_configs == {}
    assert world.partition("orders") == Partition((1, 2), (2,), 2, 1, 1)
    assert world.delta.brokers[0].deleted


def test_replica_may_be_node_that_has_not_registered() -> None:
    world = MetadataWorld(1)
    world.accept(AddNode(2, "h", 5002))
    world.create("orders", build_assignment(1, 2, isr=(1,)))
    assert world.partition("orders").replicas == (1, 2)


def isr_change(
    world: MetadataWorld, *members: int, leader: int = 1, epoch_shift: int = 0, version_shift: int = 0
) -> UpdateISR:
    topic, partition = world.image.topics["orders"], world.partition("orders")
    brokers = world.image.brokers
    change = IsrChange(
        topic.id,
        0,
        partition.leader_epoch + epoch_shift,
        partition.partition_epoch + version_shift,
        tuple(IsrMember(member, brokers[member].epoch if member in brokers else 0) for member in members),
    )
    return UpdateISR(leader, brokers[leader].epoch, (change,))


def test_leader_can_expand_and_shrink_isr() -> None:
    world = MetadataWorld(1, 2, 3)
    world.create("orders", build_assignment(1, 2, 3))
    assert not world.accept(isr_change(world, 1)).failures
    assert world.partition("orders") == Partition((1, 2, 3), (1,), 1, 0, 1)
    assert not world.accept(isr_change(world, 3, 1)).failures
    assert world.partition("orders") == Partition((1, 2, 3), (1, 3), 1, 0, 2)


def test_isr_change_with_outdated_epoch_is_rejected() -> None:
    world = MetadataWorld(1, 2, 3)
    world.create("orders", build_assignment(1, 2, 3))
    cases = {
        isr_change(world, 1, 2, epoch_shift=-1): ErrorCode.FENCED_LEADER_EPOCH,
        isr_change(world, 1, 2, epoch_shift=1): ErrorCode.FENCED_LEADER_EPOCH,
        isr_change(world, 1, 2, leader=2): ErrorCode.FENCED_LEADER_EPOCH,
        isr_change(world, 1, 2, version_shift=-1): ErrorCode.INVALID_UPDATE_VERSION,
        isr_change(world, 2, 3): ErrorCode.INVALID_REQUEST,
        isr_change(world, 1, 9): ErrorCode.INVALID_REQUEST,
        UpdateISR(1, world.image.brokers[1].epoch, (IsrChange(build_id(9), 0, 0, 0, ()),)): ErrorCode.UNKNOWN_TOPIC_ID,
    }
    for command, code in cases.items():
        result = world.accept(command)
        assert [failure.code for failure in result.failures] == [code]
        assert world.partition("orders") == Partition((1, 2, 3), (1, 2, 3), 1)


def test_restarted_or_fenced_replica_cannot_join_isr() -> None:
    world = MetadataWorld(1, 2, 3)
    world.create("orders", build_assignment(1, 2, 3, isr=(1,)))
    with_old_epoch = isr_change(world, 1, 2)
    world.register(2, incarnation_number=1)
    assert world.accept(with_old_epoch).failures[0].code is ErrorCode.INELIGIBLE_REPLICA
    world.accept(UpdateBrokerStatus(3, OFFLINE))
    assert world.accept(isr_change(world, 1, 3)).failures[0].code is ErrorCode.INELIGIBLE_REPLICA
    assert world.partition("orders").isr == (1,)


def test_isr_change_with_old_broker_epoch_is_rejected() -> None:
    world = MetadataWorld(1, 2)
    world.create("orders", build_assignment(1, 2))
    command = isr_change(world, 1)
    world.register(1, incarnation_number=1)
    assert world.reject(command)[0] is ErrorCode.STALE_BROKER_EPOCH


def test_leader_must_be_in_isr_unless_unclean() -> None:
    world = MetadataWorld(1, 2, 3)
    topic = world.create("orders", build_assignment(1, 2, 3, isr=(1, 2)))
    world.accept(SetPartitionLeader(topic.id, 0, 2, leader_epoch=0))
    assert world.partition("orders") == Partition((1, 2, 3), (1, 2), 2, 1, 1)
    refusals = {
        SetPartitionLeader(topic.id, 0, 1, leader_epoch=0): ErrorCode.FENCED_LEADER_EPOCH,
        SetPartitionLeader(topic.id, 0, 2): ErrorCode.ELECTION_NOT_NEEDED,
        SetPartitionLeader(topic.id, 0, 3): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        SetPartitionLeader(topic.id, 0, 9): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        SetPartitionLeader(topic.id, 1, 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        SetPartitionLeader(build_id(9), 0, 1): ErrorCode.UNKNOWN_TOPIC_ID,
    }
    for command, code in refusals.items():
        assert world.reject(command)[0] is code
    world.accept(SetPartitionLeader(topic.id, 0, 3, unclean=True))
    assert world.partition("orders") == Partition((1, 2, 3), (3,), 3, 2, 2)
    world.accept(UpdateBrokerStatus(1, OFFLINE))
    assert world.reject(SetPartitionLeader(topic.id, 0, 1, unclean=True))[0] is ErrorCode.BROKER_NOT_AVAILABLE
    world.accept(SetPartitionLeader(topic.id, 0, NO_LEADER))
    assert world.partition("orders") == Partition((1, 2, 3), (3,), NO_LEADER, 3, 3)


def test_assignment_must_keep_an_in_sync_replica() -> None:
    world = MetadataWorld(1, 2, 3)
    topic = world.create("orders", build_assignment(1, 2))
    world.accept(AssignPartition(topic.id, 0, (1, 2, 3)))
    assert world.partition("orders") == Partition((1, 2, 3), (1, 2), 1, 0, 1)
    world.accept(AssignPartition(topic.id, 0, (2, 3), partition_epoch=1))
    assert world.partition("orders") == Partition((2, 3), (2,), 2, 1, 2)
    refusals = {
        AssignPartition(topic.id, 0, (1, 2), partition_epoch=1): ErrorCode.INVALID_UPDATE_VERSION,
        AssignPartition(topic.id, 0, (1, 3)): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        AssignPartition(topic.id, 0, ()): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        AssignPartition(topic.id, 0, (2, 2)): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        AssignPartition(topic.id, 0, (2, 9)): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
    for command, code in refusals.items():
        assert world.reject(command)[0] is code


def test_delta_distinguishes_checkpoints_from_topic_changes() -> None:
    world = MetadataWorld(1)
    topic = world.create("orders")
    checkpoint = OffsetCheckpoint(topic.id, 0, 0, 100, 40)
    assert not world.accept(UpdatePartitionOffset((checkpoint,))).failures
    assert world.partition("orders") == Partition((1,), (1,), 1, 0, 0, 100, 40)
    assert (world.delta.topics, world.delta.checkpoints) == ((), ("orders",))
    world.accept(UpdatePartitionOffset((checkpoint,)))
    assert not world.delta


def test_invalid_or_outdated_checkpoint_is_rejected() -> None:
    world = MetadataWorld(1)
    topic = world.create("orders")
    world.register(1, incarnation_number=1)
    result = world.accept(
        UpdatePartitionOffset(
            (
                OffsetCheckpoint(topic.id, 0, 0, 100, 0),
                OffsetCheckpoint(topic.id, 0, 1, 10, 11),
                OffsetCheckpoint(topic.id, 1, 1, 1, 0),
                OffsetCheckpoint(topic.id, 0, NO_EPOCH, 1, 0),
            )
        )
    )
    assert [failure.code for failure in result.failures] == [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
    ]
    assert world.partition("orders").high_watermark == 0


def with_listeners(*listeners: Endpoint) -> MetadataWorld:
    world = MetadataWorld()
    world.accept(RegisterBroker(1, "host1", 9092, None, build_id(7), build_id(8), listeners=listeners))
    return world


def addresses(broker: Broker, *names: str) -> list[tuple[str, int] | None]:
    found = [broker.listener_address(name) for name in names]
    return [None if place is None else (place.host, place.port) for place in found]


def test_broker_with_default_listener_has_earlier_encoding_and_hash() -> None:
    world = MetadataWorld()
    world.accept(USUAL)
    assert encode_command(Envelope(NODE, NODE_INCARNATION, 1, 0, USUAL)).hex() == EARLIER_COMMAND
    assert world.image.state_hash.to_bytes(16, "little").hex() == EARLIER_HASH
    (chunk,) = encode_verified_snapshot(world.image)
    assert chunk.hex() == EARLIER_SNAPSHOT
    assert decode_snapshot([bytes.fromhex(EARLIER_SNAPSHOT)]).brokers == world.image.brokers


def test_broker_without_listeners_has_plaintext_endpoint() -> None:
    broker = with_listeners().image.brokers[1]
    assert broker.endpoints == (Endpoint("PLAINTEXT", "host1", 9092),)
    assert addresses(broker, "PLAINTEXT", "EXTERNAL") == [("host1", 9092), None]


def test_each_listener_has_its_own_address() -> None:
    broker = with_listeners(INSIDE, OUTSIDE).image.brokers[1]
    assert broker.endpoints == (INSIDE, OUTSIDE)
    assert addresses(broker, "INTERNAL", "EXTERNAL", "PLAINTEXT") == [("host1", 9092), ("example.org", 443), None]


def test_listeners_are_part_of_snapshot_and_state_hash() -> None:
    world = with_listeners(INSIDE, OUTSIDE)
    restored = decode_snapshot(encode_verified_snapshot(world.image))
    assert restored.brokers == world.image.brokers == world.replay().brokers
    assert restored.state_hash == world.image.state_hash
    assert len({with_listeners(*each).image.state_hash for each in [(), (INSIDE,), (INSIDE, OUTSIDE)]}) == 3
