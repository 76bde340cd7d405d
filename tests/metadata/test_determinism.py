"""Determinism of command application: equal commands yield equal images, results and state hashes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from chronik.metadata import levels
from chronik.metadata.apply import apply
from chronik.metadata.commands import (
    brokers,
    cluster,
    groups,
    imports,
    partitions,
    schemas,
    security,
    topics,
    transactions,
)
from chronik.metadata.delta import diff_images
from chronik.metadata.image import Image
from chronik.metadata.snapshot import decode_snapshot

from .metadata_world import (
    MetadataWorld,
    assert_partition_invariants,
    build_assignment,
    build_id,
    encode_verified_snapshot,
    image_records,
)

GROUPS = st.sampled_from(["g1", "g2", "g3"])
TOPICS = st.sampled_from(["a", "b.x", "b_x", "c", "d", "__consumer_offsets"])
IDS = st.integers(0, 6).map(build_id)
BROKERS = st.integers(1, 4)
EPOCHS = st.integers(-1, 3)
SMALL = st.integers(0, 3)
CONFIGS = st.dictionaries(st.sampled_from("wxyz"), st.sampled_from("12"), max_size=3)
ASSIGNMENTS = st.lists(st.permutations([1, 2, 3]).map(lambda r: build_assignment(*r[:2])), max_size=3).map(tuple)
OFFSETS = st.lists(st.builds(groups.OffsetToCommit, TOPICS, SMALL, SMALL, EPOCHS, st.none() | st.just("m")), max_size=4)
MEMBERS = st.lists(
    st.sampled_from(["m1", "m2"]).map(lambda m: groups.GroupMember(m, None, "c", "h", 1, 1, (("range", b"x"),), b"")),
    max_size=2,
).map(tuple)
COMMITS = st.builds(groups.CommitOffset, GROUPS, OFFSETS.map(tuple), SMALL, st.just(-1), EPOCHS)
CREATIONS = st.builds(topics.CreateTopic, IDS, TOPICS, ASSIGNMENTS, CONFIGS, SMALL)
DELETED_KEYS = st.lists(st.sampled_from("wxyz"), max_size=2).map(tuple)
ISR_MEMBERS = st.lists(st.builds(partitions.IsrMember, BROKERS, st.just(-1)), max_size=3).map(tuple)
ISR_CHANGES = st.builds(partitions.IsrChange, IDS, SMALL, EPOCHS, EPOCHS, ISR_MEMBERS)
TARGETS = st.lists(BROKERS, min_size=1, max_size=3, unique=True).map(tuple)
REASSIGNMENTS = st.builds(partitions.Reassignment, IDS, SMALL, st.none() | TARGETS)
USERS = st.sampled_from(["", "alice", "bob"])
SCRAM_KEYS = st.builds(
    security.ScramKeys,
    st.integers(1, 2),
    st.just(b"salt"),
    st.just(bytes(32)),
    st.just(bytes(32)),
    st.integers(4096, 4097),
)
TRANSACTIONAL_IDS = st.sampled_from(["t1", "t2"])
INDEXES = st.integers(-1, 30)
PRODUCER_IDS = st.integers(0, 3)
IN_TRANSACTION = st.lists(st.builds(transactions.TransactionPartition, IDS, SMALL), max_size=3).map(tuple)
GROUPS_IN_TRANSACTION = st.lists(GROUPS, max_size=2).map(tuple)
STABLE_OR_EMPTY = st.sampled_from(["Stable", "Empty"])
IMPORTS = st.integers(50, 51).map(build_id)
IMPORTED_OFFSETS = st.lists(st.builds(imports.ImportedOffset, TOPICS, SMALL, SMALL), max_size=2).map(tuple)
IMPORTED_GROUPS = st.lists(
    st.builds(imports.ImportedGroup, GROUPS, st.just("consumer"), IMPORTED_OFFSETS), max_size=2
).map(tuple)
QUOTA_ENTITIES = st.sampled_from([(("user", "u"),), (("user", ""), ("client-id", "c")), (("ip", "10.0.0.1"),)])
QUOTA_KEYS = st.sampled_from(["producer_byte_rate", "request_percentage"])
QUOTA_ALTERATIONS = st.builds(
    security.QuotaAlteration,
    QUOTA_ENTITIES,
    st.dictionaries(QUOTA_KEYS, st.sampled_from([1.0, 0.1]), max_size=2),
    st.lists(QUOTA_KEYS, max_size=2).map(tuple),
)

ACLS = st.lists(
    st.builds(
        security.Acl, st.just(2), TOPICS, st.just(3), st.just("User:u"), st.just("*"), st.integers(3, 4), st.just(3)
    ),
    max_size=3,
).map(tuple)

SUBJECTS = st.sampled_from(["s", "t", ":.lab:s"])
SETTINGS_NAMES = SUBJECTS | st.sampled_from(["", ":.lab:", ":.__GLOBAL:"])
SCHEMA_REFERENCES = st.lists(
    st.builds(schemas.ReferencedVersion, st.just("n"), SUBJECTS, st.integers(1, 3)), max_size=1
)
REGISTRATIONS = st.builds(
    lambda subject, text, references, properties, revision, schema_id, version: schemas.RegisterSchema(
        subject,
        1,
        text,
        tuple(references),
        properties,
        text.encode() * 16,
        (1,) * len(references),
        revision,
        (),
        0,
        schema_id,
        version,
    ),
    SUBJECTS,
    st.sampled_from("ab"),
    SCHEMA_REFERENCES,
    st.sampled_from(["", "{}"]),
    st.sampled_from([-1, -1, 0, 3]),
    st.sampled_from([-1, -1, 1, 5]),
    st.sampled_from([-1, -1, 1, 3]),
)
DELETED_VERSIONS = st.lists(st.integers(1, 4), min_size=1, max_size=2).map(tuple)

COMMANDS: st.SearchStrategy[Any] = st.one_of(
    REGISTRATIONS,
    st.builds(schemas.DeleteSchemaVersions, SUBJECTS, DELETED_VERSIONS, st.booleans(), st.just(-1)),
    st.builds(schemas.SetSchemaConfig, SETTINGS_NAMES, st.sampled_from(["", "{}"]), st.sampled_from([-1, 0])),
    st.builds(
        schemas.SetSchemaMode,
        st.lists(SETTINGS_NAMES, min_size=1, max_size=2).map(tuple),
        st.sampled_from(["", "IMPORT"]),
        st.booleans(),
    ),
    st.builds(schemas.SetSchemaContext, st.sampled_from([".", ".lab"]), st.integers(0, 9), st.booleans()),
    st.builds(security.CreateAcls, ACLS),
    st.builds(security.DeleteAcls, ACLS),
    st.builds(cluster.CreateCluster, st.sampled_from(["x", "y"]), SMALL),
    st.builds(cluster.AddNode, BROKERS, st.just("h"), SMALL, st.booleans()),
    st.builds(cluster.RemoveNode, BROKERS),
    st.builds(cluster.UpdateNode, BROKERS, voter=st.none() | st.booleans(), draining=st.none() | st.booleans()),
    st.builds(cluster.SetFeatureLevel, st.sampled_from("fg"), SMALL),
    st.builds(cluster.AllocateProducerIds, BROKERS, EPOCHS, st.integers(1, 5)),
    st.builds(
        brokers.RegisterBroker, BROKERS, st.just("h"), st.just(1), st.none(), IDS, st.integers(20, 22).map(build_id)
    ),
    st.builds(brokers.UpdateBrokerStatus, BROKERS, st.sampled_from(brokers.BrokerStatus)),
    st.builds(brokers.RemoveBroker, BROKERS),
    st.builds(brokers.UpdateBrokerConfig, st.integers(-1, 3), CONFIGS, DELETED_KEYS, st.booleans()),
    CREATIONS,
    st.builds(topics.CreateTopics, st.lists(CREATIONS, max_size=3).map(tuple)),
    st.builds(topics.DeleteTopic, IDS),
    st.builds(topics.UpdateTopicConfig, IDS, CONFIGS, DELETED_KEYS, st.booleans(), st.integers(-1, 3)),
    st.builds(topics.CreatePartitions, IDS, SMALL, ASSIGNMENTS, st.integers(-1, 3)),
    st.builds(imports.BeginImport, IMPORTS, st.just("a folder"), st.integers(0, 1), SMALL, SMALL),
    st.builds(
        lambda key, topic, epoch: imports.ImportTopics(key, (topic,), ((epoch,) * len(topic.partitions),)),
        IMPORTS,
        CREATIONS,
        SMALL,
    ),
    st.builds(imports.FinishImport, IMPORTS, IMPORTED_GROUPS, SMALL, st.dictionaries(GROUPS, CONFIGS), CONFIGS),
    st.builds(imports.ImportGroups, IMPORTS, IMPORTED_GROUPS, SMALL),
    st.builds(imports.AbortImport, IMPORTS),
    st.builds(partitions.AssignPartition, IDS, SMALL, st.permutations([1, 2, 3]).map(lambda r: tuple(r[:2])), EPOCHS),
    st.builds(partitions.SetPartitionLeader, IDS, SMALL, st.integers(-1, 3), EPOCHS, st.booleans()),
    st.builds(partitions.UpdateISR, BROKERS, st.just(-1), st.lists(ISR_CHANGES, max_size=2).map(tuple)),
    st.builds(
        partitions.UpdatePartitionOffset,
        st.lists(st.builds(partitions.OffsetCheckpoint, IDS, SMALL, EPOCHS, SMALL, SMALL), max_size=2).map(tuple),
    ),
    st.builds(partitions.ReassignPartitions, st.lists(REASSIGNMENTS, max_size=3).map(tuple), st.booleans()),
    st.builds(
        partitions.ReportLostRecords,
        SMALL,
        EPOCHS,
        st.lists(st.builds(partitions.PartitionKey, IDS, SMALL), max_size=3).map(tuple),
    ),
    st.builds(
        partitions.ElectLeaders,
        st.lists(st.builds(partitions.PartitionKey, IDS, SMALL), max_size=3).map(tuple),
        st.booleans(),
    ),
    st.builds(groups.CreateConsumerGroup, GROUPS, st.just("consumer"), SMALL, EPOCHS),
    st.builds(
        groups.UpdateConsumerGroup,
        GROUPS,
        st.just("consumer"),
        SMALL,
        st.none(),
        st.none(),
        STABLE_OR_EMPTY,
        MEMBERS,
        SMALL,
    ),
    st.builds(groups.DeleteConsumerGroup, GROUPS),
    st.builds(groups.UpdateGroupConfig, GROUPS, CONFIGS, DELETED_KEYS, st.booleans()),
    COMMITS,
    st.builds(groups.CommitOffsetBatch, st.lists(COMMITS, max_size=3).map(tuple)),
    st.builds(
        groups.DeleteOffsets, GROUPS, st.lists(st.builds(groups.OffsetKey, TOPICS, SMALL), max_size=3).map(tuple)
    ),
    st.builds(
        groups.ExpireOffsets,
        GROUPS,
        st.lists(st.builds(groups.ExpiredOffset, TOPICS, SMALL, SMALL), max_size=3).map(tuple),
        st.integers(-1, 3),
    ),
    st.builds(transactions.InitTransaction, TRANSACTIONAL_IDS, INDEXES, PRODUCER_IDS, SMALL, st.just(1), SMALL),
    st.builds(transactions.AddToTransaction, TRANSACTIONAL_IDS, INDEXES, IN_TRANSACTION, GROUPS_IN_TRANSACTION, SMALL),
    st.builds(
        transactions.EndTransaction,
        TRANSACTIONAL_IDS,
        INDEXES,
        st.booleans(),
        SMALL,
        SMALL,
        next_producer_id=st.integers(-1, 3),
    ),
    st.builds(transactions.CompleteTransaction, TRANSACTIONAL_IDS, INDEXES, SMALL),
    st.builds(transactions.ExpireTransaction, TRANSACTIONAL_IDS, INDEXES),
    st.builds(transactions.HoldCommits),
    st.builds(
        security.AlterScramUser,
        USERS,
        st.lists(SCRAM_KEYS, max_size=2).map(tuple),
        st.lists(st.integers(1, 2), max_size=1).map(tuple),
        st.sampled_from([b"", b"secret 1", b"secret 2"]),
        st.booleans(),
    ),
    st.builds(transactions.ReleaseCommits, st.integers(0, 30)),
    st.builds(transactions.StageOffsets, GROUPS, TRANSACTIONAL_IDS, INDEXES, OFFSETS.map(tuple), SMALL),
    st.builds(security.AlterQuotas, st.lists(QUOTA_ALTERATIONS, max_size=3).map(tuple)),
)


def populated(level: int | None = None) -> MetadataWorld:
    """Return a world with records for random commands to change."""
    world = MetadataWorld(1, 2, 3, level=level)
    world.create("a", build_assignment(1, 2), build_assignment(2, 1), number=1)
    world.create("__consumer_offsets", build_assignment(1, 2), number=2)
    return world


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(COMMANDS, max_size=40), st.sampled_from([None, levels.HIGHEST]))
def test_replaying_random_commands_yields_equal_state(commands: list[Any], level: int | None) -> None:
    world = populated(level)
    results = [world.apply(command) for command in commands]
    replica = Image()
    replayed = [apply(replica, envelope, index).result for index, envelope in enumerate(world.envelopes, 1)]
    assert replayed[len(replayed) - len(results) :] == results
    assert replica.recent_hashes() == world.image.recent_hashes()
    assert image_records(replica) == image_records(world.image)
    assert_indexes_agree(world.image)
    assert_partitions_are_sound(world.image)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(COMMANDS, max_size=30), st.lists(COMMANDS, max_size=20), st.sampled_from([None, levels.HIGHEST]))
def test_node_restored_from_snapshot_stays_in_sync(before: list[Any], after: list[Any], level: int | None) -> None:
    world = populated(level)
    for command in before:
        world.apply(command)
    replica = decode_snapshot(encode_verified_snapshot(world.image))
    assert image_records(replica) == image_records(world.image)
    assert replica.state_hash == world.image.state_hash
    for command in after:
        expected = world.apply(command)
        result, delta = apply(replica, world.envelopes[-1], replica.applied_index + 1)
        assert (result, delta) == (expected, world.delta)
    assert replica.state_hash == world.image.state_hash
    assert_indexes_agree(replica)
    assert encode_verified_snapshot(replica) == encode_verified_snapshot(
        decode_snapshot(encode_verified_snapshot(replica))
    )


IMPORT_UNDER_WAY = [
    imports.BeginImport(build_id(50), "a folder", 1, 0, 0),
    imports.ImportTopics(
        build_id(50), (topics.CreateTopic(build_id(3), "b.x", (build_assignment(1, 2),), {}, 0),), leader_epochs=((0,),)
    ),
]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(COMMANDS, max_size=30))
@example(IMPORT_UNDER_WAY)
def test_deltas_describe_changes_between_images(commands: list[Any]) -> None:
    world = populated()
    topics = dict(world.image.all_topics_by_id)
    brokers, groups = dict(world.image.brokers), dict(world.image.groups)
    for command in commands:
        world.apply(command)
        for topic in world.delta.topics:
            assert topics.pop(topic.old.id if topic.old else b"", None) == topic.old
            if topic.new:
                topics[topic.new.id] = topic.new
        for broker in world.delta.brokers:
            assert brokers.pop(broker.old.id if broker.old else 0, None) == broker.old
            if broker.new:
                brokers[broker.new.id] = broker.new
        for group in world.delta.groups:
            assert groups.pop(group.old.group_id if group.old else "", None) == group.old
            if group.new:
                groups[group.new.group_id] = group.new
        if world.delta.checkpoints:
            topics = dict(world.image.all_topics_by_id)
    assert topics == world.image.all_topics_by_id
    assert (brokers, groups) == (world.image.brokers, world.image.groups)
    assert not diff_images(world.image, world.replay())


def assert_indexes_agree(image: Image) -> None:
    assert {topic.id: topic for topic in image.topics.values()} == image.topics_by_id
    for name, topic in image.topics.items():
        assert image.find_topic_by_metric_name(name.replace(".", "_")) == topic.name == name
    held = [(topic, each) for topic in image.all_topics_by_id.values() for each in topic.partitions]
    for broker_id in {*image.brokers, *(replica for _, each in held for replica in each.replicas)}:
        there = [topic.id for topic, each in held if broker_id in each.replicas]
        assert {topic.id for topic in image.topics_on_broker(broker_id)} == set(there)
        assert image.replica_count(broker_id) == len(there)
    assert {topic.id for topic in image.leaderless_topics()} == {topic.id for topic, each in held if each.leader < 0}
    for group_id in image.iter_groups_with_offsets():
        assert group_id in image.groups
        for topic_name, partition in image.offsets(group_id):
            assert partition < len(image.topics[topic_name].partitions)


def assert_partitions_are_sound(image: Image) -> None:
    for topic in image.topics.values():
        for partition in topic.partitions:
            assert_partition_invariants(partition, image)


SCRIPT = """
from metadata.test_determinism import run_script
print(run_script())
"""


def run_script() -> str:
    world = populated()
    for number in range(20):
        configs = {"b": "1", "a": "2"}
        world.accept(
            topics.CreateTopic(build_id(100 + number), f"t{number}", (build_assignment(1, 2),), configs, number)
        )
        offsets = tuple(groups.OffsetToCommit(f"t{part}", 0, number) for part in range(number))
        world.accept(groups.CommitOffset(f"group-{number}", offsets, number))
    world.accept(topics.DeleteTopic(build_id(105)))
    world.register(2, incarnation_number=3)
    return f"{world.image.state_hash:032x}"


@pytest.mark.slow
def test_state_hash_is_independent_of_hash_seed() -> None:
    seen = set()
    for seed in ("1", "2"):
        path = os.pathsep.join([os.path.dirname(os.path.dirname(__file__)), *sys.path])
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        command = [sys.executable, "-c", SCRIPT]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        seen.add(run.stdout.strip())
    assert seen == {run_script()}
