"""Golden bytes of every metadata command and of snapshots: renaming a class or a field must not change what is stored.

`golden/commands.txt` has one line per command in `COMMANDS`: the command's tag and its encoded envelope.
`golden/snapshot.txt` and `golden/registry-snapshot.txt` have one line per chunk. Lines are only ever appended: logs and
snapshots with these bytes exist.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from chronik.metadata import snapshot
from chronik.metadata.commands.brokers import (
    BrokerStatus,
    Endpoint,
    RegisterBroker,
    RemoveBroker,
    UpdateBrokerConfig,
    UpdateBrokerStatus,
)
from chronik.metadata.commands.cluster import (
    AddNode,
    AllocateProducerIds,
    CreateCluster,
    RemoveNode,
    SetFeatureLevel,
    UpdateNode,
)
from chronik.metadata.commands.envelope import Command, Envelope, decode_command, encode_command
from chronik.metadata.commands.groups import (
    CommitOffset,
    CommitOffsetBatch,
    CreateConsumerGroup,
    DeleteConsumerGroup,
    DeleteOffsets,
    ExpiredOffset,
    ExpireOffsets,
    GroupMember,
    OffsetKey,
    OffsetToCommit,
    UpdateConsumerGroup,
    UpdateGroupConfig,
)
from chronik.metadata.commands.imports import (
    AbortImport,
    BeginImport,
    FinishImport,
    ImportedGroup,
    ImportedOffset,
    ImportGroups,
    ImportTopics,
)
from chronik.metadata.commands.partitions import (
    AssignPartition,
    ElectLeaders,
    IsrChange,
    IsrMember,
    OffsetCheckpoint,
    PartitionKey,
    Reassignment,
    ReassignPartitions,
    ReportLostRecords,
    SetPartitionLeader,
    UpdateISR,
    UpdatePartitionOffset,
)
from chronik.metadata.commands.schemas import (
    DeleteSchemaVersions,
    ReferencedVersion,
    RegisterSchema,
    SetSchemaConfig,
    SetSchemaContext,
    SetSchemaMode,
)
from chronik.metadata.commands.security import (
    Acl,
    AlterQuotas,
    AlterScramUser,
    CreateAcls,
    DeleteAcls,
    QuotaAlteration,
    ScramKeys,
)
from chronik.metadata.commands.topics import (
    CreatePartitions,
    CreateTopic,
    CreateTopics,
    DeleteTopic,
    PartitionAssignment,
    UpdateTopicConfig,
)
from chronik.metadata.commands.transactions import (
    AddToTransaction,
    CompleteTransaction,
    EndTransaction,
    ExpireTransaction,
    HoldCommits,
    InitTransaction,
    ReleaseCommits,
    StageOffsets,
    TransactionPartition,
)
from chronik.metadata.levels import FEATURE_NAME, IMPORTED_GROUPS_LEVEL, SCHEMAS_LEVEL
from chronik.metadata.snapshot import SnapshotEntry
from chronik.protocol.errors import ErrorCode

from .metadata_world import NODE, NODE_INCARNATION, MetadataWorld, build_id, encode_verified_snapshot, image_records

GOLDEN = Path(__file__).with_name("golden")

TOPIC_ID = build_id(7)
IMPORT_ID = build_id(8)
INCARNATION = build_id(9)
DIRECTORY_ID = build_id(10)
NOW_MS = 1_700_000_000_000

ASSIGNMENT = PartitionAssignment((1, 2), (1, 2), 1)
TOPIC = CreateTopic(TOPIC_ID, "orders", (ASSIGNMENT, ASSIGNMENT), {"retention.ms": "1000"}, NOW_MS, True)
MEMBER = GroupMember("m1", "i1", "c1", "/h1", 10_000, 60_000, (("range", b"\x00\x01"),), b"\x02\x03")
OFFSET = OffsetToCommit("orders", 1, 42, 3, "note")
COMMIT = CommitOffset("g1", (OFFSET,), NOW_MS, NOW_MS + 1, 4)
IMPORTED_GROUP = ImportedGroup("g2", "consumer", (ImportedOffset("orders", 0, 5, 1, "m", NOW_MS, NOW_MS + 1),))
TRANSACTION_PARTITION = TransactionPartition(TOPIC_ID, 1)
KEYS = ScramKeys(1, b"salt", bytes(range(32)), bytes(range(32, 64)), 4096)
REFERENCE = ReferencedVersion("example.Customer", "customers", 3)
ACL = Acl(2, "orders", 3, "User:alice", "*", 3, 3)

COMMANDS: tuple[Command, ...] = (
    CreateCluster("cluster-1", NOW_MS),
    AddNode(4, "host4", 9094, False),
    RemoveNode(4),
    SetFeatureLevel(FEATURE_NAME, 5),
    AllocateProducerIds(1, 2, 1000),
    UpdateNode(4, "host5", 9095, True, False),
    RegisterBroker(1, "host1", 9092, "rack1", INCARNATION, DIRECTORY_ID),
    RegisterBroker(
        1, "host1", 9092, None, INCARNATION, DIRECTORY_ID, True, (Endpoint("TLS", "host1", 9093),), (1, 5), NOW_MS
    ),
    UpdateBrokerStatus(1, BrokerStatus.MAINTENANCE, 2),
    RemoveBroker(1, 2),
    UpdateBrokerConfig(-1, {"k": "v"}, ("old",), True),
    TOPIC,
    CreateTopics((TOPIC,)),
    DeleteTopic(TOPIC_ID),
    UpdateTopicConfig(TOPIC_ID, {"k": "v"}, ("old",), True),
    UpdateTopicConfig(TOPIC_ID, {}, (), False, NOW_MS),
    CreatePartitions(TOPIC_ID, 2, (ASSIGNMENT,)),
    CreatePartitions(TOPIC_ID, 2, (ASSIGNMENT,), NOW_MS),
    AssignPartition(TOPIC_ID, 1, (2, 3), 4),
    SetPartitionLeader(TOPIC_ID, 1, 2, 5, True),
    UpdateISR(1, 2, (IsrChange(TOPIC_ID, 1, 5, 6, (IsrMember(1, 2), IsrMember(2, 3))),)),
    UpdatePartitionOffset((OffsetCheckpoint(TOPIC_ID, 1, 5, 100, 10),)),
    CreateConsumerGroup("g1", "consumer", NOW_MS, 4),
    UpdateConsumerGroup("g1", "consumer", 2, "range", "m1", "Stable", (MEMBER,), NOW_MS, 4),
    DeleteConsumerGroup("g1", 4),
    COMMIT,
    CommitOffsetBatch((COMMIT,)),
    DeleteOffsets("g1", (OffsetKey("orders", 1),), 4),
    ExpireOffsets("g1", (ExpiredOffset("orders", 1, NOW_MS),), NOW_MS, 4),
    UpdateGroupConfig("g1", {"k": "v"}, ("old",), True),
    InitTransaction("t1", 5, 1000, 1, 60_000, NOW_MS, 999, 2, 4, True),
    AddToTransaction("t1", 5, (TRANSACTION_PARTITION,), ("g1",), NOW_MS, 4, True),
    EndTransaction("t1", 5, True, 1, NOW_MS, 999, 2, 1001, 4, True),
    CompleteTransaction("t1", 5, NOW_MS, 4),
    ExpireTransaction("t1", 5, 4),
    StageOffsets("g1", "t1", 5, (OFFSET,), NOW_MS, 4),
    ReassignPartitions((Reassignment(TOPIC_ID, 0, (2, 3)), Reassignment(TOPIC_ID, 1, None)), False),
    ElectLeaders((PartitionKey(TOPIC_ID, 1),), True),
    ReportLostRecords(1, 2, (PartitionKey(TOPIC_ID, 1),)),
    BeginImport(IMPORT_ID, "another cluster", 1, 1000, NOW_MS),
    ImportTopics(IMPORT_ID, (TOPIC,), ((3, 4),)),
    FinishImport(IMPORT_ID, (IMPORTED_GROUP,), NOW_MS, {"g2": {"k": "v"}}, {"k": "v"}),
    AbortImport(IMPORT_ID),
    HoldCommits(),
    ReleaseCommits(12),
    ImportGroups(IMPORT_ID, (IMPORTED_GROUP,), NOW_MS),
    AlterScramUser("alice", (KEYS,), (2,), b"secret", True),
    CreateAcls((ACL,)),
    DeleteAcls((ACL,)),
    AlterQuotas((QuotaAlteration((("client-id", "c"), ("user", "alice")), {"producer_byte_rate": 1.5}, ("old",)),)),
    RegisterSchema(":.lab:orders", 1, '"int"', (REFERENCE,), "{}", build_id(13), (5,), 6, (7, 8, 9, 10), NOW_MS),
    RegisterSchema("orders", 3, "", (), "", build_id(13), (), -1, (), NOW_MS, 11, 12, 13, True),
    DeleteSchemaVersions("orders", (1, 2), True, 6),
    SetSchemaConfig("orders", '{"compatibilityLevel":"FULL"}', 7),
    SetSchemaMode(("orders", ":.lab:"), "READONLY", True),
    SetSchemaContext(".lab", 100, True),
)


def golden_lines(name: str) -> list[str]:
    return (GOLDEN / name).read_text(encoding="ascii").splitlines()


def envelope(command: Command) -> Envelope:
    return Envelope(NODE, NODE_INCARNATION, 3, 2, command)


def test_golden_commands_cover_every_command_class() -> None:
    assert {type(command) for command in COMMANDS} == set(get_args(Command))
    assert len(golden_lines("commands.txt")) == len(COMMANDS)


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=lambda number: type(COMMANDS[number]).__name__)
def test_command_encodes_to_its_golden_bytes(number: int) -> None:
    command: Any = COMMANDS[number]
    line = f"{command.__struct_config__.tag} {encode_command(envelope(command)).hex()}"
    lines = golden_lines("commands.txt")
    assert number < len(lines), f"append to golden/commands.txt: {line}"
    assert line == lines[number]


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=lambda number: type(COMMANDS[number]).__name__)
def test_golden_bytes_decode_to_the_command(number: int) -> None:
    encoded = golden_lines("commands.txt")[number].split()[1]
    assert decode_command(bytes.fromhex(encoded)) == envelope(COMMANDS[number])


def build_world() -> MetadataWorld:
    """Apply commands that leave a record of every kind in the image, and the result of a rejected command."""
    world = MetadataWorld(1, 2, 3, level=IMPORTED_GROUPS_LEVEL)
    world.accept(CreateCluster("cluster-1", NOW_MS))
    world.accept(AddNode(1, "host1", 9094))
    world.accept(AddNode(2, "host2", 9094))
    world.accept(UpdateNode(2, draining=True))
    epoch = world.image.brokers[1].epoch
    assert world.accept(AllocateProducerIds(1, epoch, 1000)).value == 0
    world.accept(UpdateBrokerConfig(-1, {"log.retention.ms": "1000"}))
    world.accept(UpdateBrokerConfig(2, {"log.retention.ms": "2000"}))
    world.accept(CreateTopic(TOPIC_ID, "orders", (ASSIGNMENT,) * 3, {"retention.ms": "1000"}, NOW_MS))
    world.accept(UpdateTopicConfig(TOPIC_ID, {"segment.bytes": "2000"}, time_ms=NOW_MS + 1))
    world.accept(ReassignPartitions((Reassignment(TOPIC_ID, 1, (2, 3)),)))
    world.accept(UpdateConsumerGroup("g1", "consumer", 2, "range", "m1", "Stable", (MEMBER,), NOW_MS))
    world.accept(UpdateGroupConfig("g1", {"session.timeout.ms": "45000"}))
    world.accept(CommitOffset("g1", (OFFSET, OffsetToCommit("orders", 0, 7)), NOW_MS))
    world.accept(InitTransaction("t1", -1, 10, 0, 60_000, NOW_MS))
    partitions = tuple(TransactionPartition(TOPIC_ID, index) for index in range(3))
    world.accept(AddToTransaction("t1", world.image.transactions["t1"].index, partitions, ("g1",), NOW_MS))
    world.accept(StageOffsets("g1", "t1", world.image.transactions["t1"].began_index, (OFFSET,), NOW_MS))
    world.accept(HoldCommits())
    world.accept(BeginImport(IMPORT_ID, "another cluster", 1, 1000, NOW_MS))
    imported = CreateTopic(build_id(11), "imported", (ASSIGNMENT,), {}, NOW_MS)
    world.accept(ImportTopics(IMPORT_ID, (imported,), ((3,),)))
    world.accept(AlterScramUser("alice", (KEYS,), secret=b"secret"))
    world.accept(CreateAcls((ACL,)))
    world.accept(AlterQuotas((QuotaAlteration((("user", "alice"),), {"producer_byte_rate": 1.5}),)))
    assert world.apply(DeleteTopic(build_id(12))).code is ErrorCode.UNKNOWN_TOPIC_ID
    return world


def build_registry_world() -> MetadataWorld:
    """Apply commands that leave a record of every kind of the schema registry in the image."""
    world = MetadataWorld(level=SCHEMAS_LEVEL)
    world.accept(RegisterSchema("customers", 1, '"int"', (), "{}", build_id(13), (), 0, (), NOW_MS, 5, 3))
    world.accept(DeleteSchemaVersions("customers", (3,), False, world.image.applied_index))
    world.accept(RegisterSchema("orders", 1, '"long"', (REFERENCE,), "", build_id(14), (5,), 0, (), NOW_MS))
    world.accept(SetSchemaConfig("orders", '{"compatibilityLevel":"FULL"}', 0))
    world.accept(SetSchemaMode(("orders", ":.lab:"), "READONLY"))
    world.accept(SetSchemaContext(".lab", 100, True))
    return world


WORLDS = {"snapshot.txt": build_world, "registry-snapshot.txt": build_registry_world}


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split topics and transactions over several entries, as large ones are."""
    monkeypatch.setattr(snapshot, "CHUNK_RECORDS", 2)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", WORLDS)
def test_snapshot_encodes_to_its_golden_bytes(name: str) -> None:
    assert [chunk.hex() for chunk in encode_verified_snapshot(WORLDS[name]().image)] == golden_lines(name)


@pytest.mark.parametrize("name", WORLDS)
def test_golden_snapshot_decodes_to_the_image(name: str) -> None:
    chunks = [bytes.fromhex(line) for line in golden_lines(name)]
    assert image_records(snapshot.decode_snapshot(chunks)) == image_records(WORLDS[name]().image)


def test_golden_snapshots_cover_every_entry_class() -> None:
    lines = [line for name in WORLDS for line in golden_lines(name)]
    entries = [entry for line in lines for entry in msgspec.msgpack.decode(bytes.fromhex(line))]
    classes: tuple[Any, ...] = get_args(SnapshotEntry)
    assert {entry[0] for entry in entries} == {cls.__struct_config__.tag for cls in classes}
