"""Comparison of the nodes' metadata, replayed from disk; also data directories, read-only files and group offsets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from chronik.client.records import TopicPartition
from chronik.errors import StorageError
from chronik.files import DiskFileSystem
from chronik.ids import generate_id
from chronik.metadata.commands.brokers import RegisterBroker
from chronik.metadata.commands.cluster import CreateCluster
from chronik.metadata.commands.envelope import Command, Envelope, encode_command
from chronik.metadata.snapshot import encode_snapshot
from chronik.metadata.stores.journal import MetadataJournal
from chronik.node.data_directory import DataDirectory
from chronik.node.identity import IDENTITY_FILE, DirectoryMode
from chronik.pipeline.audit.data_directories import (
    AuditInputError,
    NodeDataDirectory,
    ReadOnlyFileSystem,
    open_data_directories,
)
from chronik.pipeline.audit.findings import Finding, FindingKind
from chronik.pipeline.audit.group_offsets import LogBounds, check_group_offsets
from chronik.pipeline.audit.metadata_state import compare_stored_metadata, read_stored_metadata
from chronik.pipeline.sink.exactly_once import EPOCHS_TOPIC
from tests.pipeline.audit.replica_logs import flip_byte

CLUSTER = CreateCluster("a cluster", 0)
IDS = [generate_id() for _ in range(20)]


def register_broker(number: int, host: str = "somewhere") -> RegisterBroker:
    return RegisterBroker(number, host, 9092, None, IDS[number], IDS[number])


def create_node(
    tmp_path: Path, node_id: int, commands: Sequence[Command], *, snapshot_after: int | None = None
) -> NodeDataDirectory:
    """Create a data directory whose metadata log contains these commands."""
    path = tmp_path / f"node{node_id}"
    path.mkdir()
    directory = DataDirectory(path, node_id, DirectoryMode.STANDALONE)
    directory.open()
    directory.close()
    journal = MetadataJournal(DiskFileSystem(path))
    image = journal.recover()
    for number, command in enumerate(commands, 1):
        journal.write([encode_command(Envelope(1, IDS[0], number, number - 1, command))])
        if number == snapshot_after:
            journal.close()
            image = journal.recover()
            writer = journal.begin_snapshot()
            for chunk in encode_snapshot(image.freeze()):
                writer.write(chunk)
            writer.commit()
            journal.truncate_through(number)
    journal.close()
    return NodeDataDirectory(node_id, str(path), (path / IDENTITY_FILE).read_bytes())


def compare(*directories: NodeDataDirectory) -> tuple[list[Finding], list[str], int | None]:
    states = compare_stored_metadata({directory.node: directory for directory in directories})
    return list(states.findings), list(states.notes), states.index


def test_nodes_with_same_commands_agree_with_and_without_snapshots(tmp_path: Path) -> None:
    commands: list[Command] = [CLUSTER, *(register_broker(number) for number in range(1, 8))]
    directories = [
        create_node(tmp_path, 1, commands),
        create_node(tmp_path, 2, commands, snapshot_after=3),
        create_node(tmp_path, 3, commands[:5], snapshot_after=4),
    ]
    assert compare(*directories) == ([], [], 5)
    assert read_stored_metadata(directories[1]).snapshot_index == 3
    states = compare_stored_metadata({directory.node: directory for directory in directories})
    assert states.latest_image is not None
    assert sorted(states.latest_image.brokers) == list(range(1, 8))


def test_node_with_different_state_hash_is_reported(tmp_path: Path) -> None:
    directories = [
        create_node(tmp_path, number, [CLUSTER, register_broker(1), register_broker(2)]) for number in (1, 3)
    ]
    other = create_node(tmp_path, 2, [CLUSTER, register_broker(1), register_broker(2, "elsewhere")])
    (found,), _, index = compare(*directories, other)
    assert (found.kind, found.node, index) == (FindingKind.STATE, 2, 3)
    assert "differs from node 1, 3, which has" in found.says


def test_node_behind_other_snapshots_is_noted_and_not_compared(tmp_path: Path) -> None:
    commands: list[Command] = [CLUSTER, *(register_broker(number) for number in range(1, 8))]
    directories = [create_node(tmp_path, number, commands, snapshot_after=6) for number in (1, 2)]
    findings, (note,), index = compare(*directories, create_node(tmp_path, 3, commands[:3]))
    assert (findings, index) == ([], 8)
    assert note.startswith("node 3: metadata was not compared, because it ends at index 3")


def test_damaged_metadata_log_is_reported_with_node(tmp_path: Path) -> None:
    directories = [
        create_node(tmp_path, number, [CLUSTER, register_broker(1), register_broker(2)]) for number in (1, 2)
    ]
    (path,) = (tmp_path / "node2" / "__meta").glob("*.wal")
    flip_byte(path, 60)
    (found,), _, index = compare(*directories)
    assert (found.kind, found.node, index) == (FindingKind.STATE, 2, 3)
    assert "damaged at byte 0" in found.says


def test_data_directories_are_identified_by_node_id(tmp_path: Path) -> None:
    one, two = create_node(tmp_path, 1, [CLUSTER]), create_node(tmp_path, 2, [CLUSTER])
    assert open_data_directories([two.path, one.path]) == {1: one, 2: two}
    with pytest.raises(AuditInputError, match="both belong to node 1"):
        open_data_directories([one.path, f"{one.path}/"])
    with pytest.raises(AuditInputError, match="not a node's data directory"):
        open_data_directories([tmp_path])
    (tmp_path / "empty").mkdir()
    empty = NodeDataDirectory(3, str(tmp_path / "empty"), b"")
    (found,), _, _ = compare(one, empty)
    assert "has no metadata" in found.says


def test_read_only_file_system_rejects_changes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    files = ReadOnlyFileSystem(tmp_path)
    file = files.open("file")
    assert file.pread(100, 0) == b"content"
    with pytest.raises(StorageError):
        ReadOnlyFileSystem(tmp_path).open("file").pwrite(b"x", 0)
    with pytest.raises(StorageError):
        files.remove("file")
    with pytest.raises(StorageError):
        files.rename("file", "other")
    file.close()
    assert (tmp_path / "file").read_bytes() == b"content"
    with pytest.raises(FileNotFoundError):
        files.create("new")
    assert not ReadOnlyFileSystem(tmp_path / "nowhere").list_directory("")
    assert not (tmp_path / "nowhere").exists()


def test_committed_offsets_outside_partition_bounds_are_reported(tmp_path: Path) -> None:
    place = TopicPartition("orders", 0)
    bounds, partitions = {place: LogBounds(10, 50)}, {"orders": 1, "others": 2}

    def check(offset: int, of: TopicPartition = place) -> list[Finding | str]:
        return list(check_group_offsets({"readers": {of: offset}}, bounds, partitions))

    assert check(10) == check(50) == []
    (beyond,) = check(51)
    assert isinstance(beyond, Finding)
    assert (beyond.kind, beyond.topic, beyond.partition, beyond.offset) == (
        FindingKind.COMMITTED_OFFSET,
        "orders",
        0,
        51,
    )
    assert "which ends at 50" in beyond.says
    (behind,) = check(9)
    assert isinstance(behind, str)
    assert "below the log start offset" in behind
    (unknown,) = check(1, TopicPartition("orders", 1))
    assert isinstance(unknown, Finding)
    assert "does not exist" in unknown.says
    assert check(1, TopicPartition("others", 1)) == []
    assert check(1000, TopicPartition(EPOCHS_TOPIC, 7)) == [], "offsets of the epochs topic are not positions"
