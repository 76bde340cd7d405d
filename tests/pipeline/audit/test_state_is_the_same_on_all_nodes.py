"""The metadata of nodes, replayed from their own disks: the same everywhere, or the node that differs is named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from chronik.client.records import TopicPartition
from chronik.errors import StorageFailed
from chronik.files import RealFiles
from chronik.ids import new_id
from chronik.metadata.commands.brokers import RegisterBroker
from chronik.metadata.commands.cluster import CreateCluster
from chronik.metadata.commands.envelope import Command, Envelope, encode_command
from chronik.metadata.snapshot import encode_snapshot
from chronik.metadata.stores.journal import Journal
from chronik.node.data_folder import DataFolder
from chronik.node.identity import IDENTITY_FILE, Mode
from chronik.pipeline.audit.findings import Finding, Kind
from chronik.pipeline.audit.folders import CannotLook, NodeFolder, node_folders
from chronik.pipeline.audit.groups import Bounds, compare_groups
from chronik.pipeline.audit.readonly import ReadOnlyFiles
from chronik.pipeline.audit.state import compare_disks, read_state
from chronik.pipeline.writing.epochs import EPOCHS_TOPIC
from tests.pipeline.audit.audited import flip

CLUSTER = CreateCluster("a cluster", 0)
IDS = [new_id() for _ in range(20)]


def broker(number: int, host: str = "somewhere") -> RegisterBroker:
    return RegisterBroker(number, host, 9092, None, IDS[number], IDS[number])


def node(tmp_path: Path, node_id: int, commands: Sequence[Command], *, snapshot_after: int | None = None) -> NodeFolder:
    """A node's folder whose metadata is what these commands come to."""
    path = tmp_path / f"node{node_id}"
    path.mkdir()
    folder = DataFolder(path, node_id, Mode.STANDALONE)
    folder.open()
    folder.close()
    journal = Journal(RealFiles(path))
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
            journal.forget_through(number)
    journal.close()
    return NodeFolder(node_id, str(path), (path / IDENTITY_FILE).read_bytes())


def compared(*folders: NodeFolder) -> tuple[list[Finding], list[str], int | None]:
    states = compare_disks({folder.node: folder for folder in folders})
    return list(states.findings), list(states.notes), states.index


def test_nodes_that_took_the_same_commands_agree_with_and_without_snapshots(tmp_path: Path) -> None:
    commands: list[Command] = [CLUSTER, *(broker(number) for number in range(1, 8))]
    folders = [
        node(tmp_path, 1, commands),
        node(tmp_path, 2, commands, snapshot_after=3),
        node(tmp_path, 3, commands[:5], snapshot_after=4),
    ]
    assert compared(*folders) == ([], [], 5)
    assert read_state(folders[1]).first == 3
    states = compare_disks({folder.node: folder for folder in folders})
    assert states.latest is not None
    assert sorted(states.latest.brokers) == list(range(1, 8))


def test_a_node_whose_state_differs_is_named_with_both_hashes(tmp_path: Path) -> None:
    folders = [node(tmp_path, number, [CLUSTER, broker(1), broker(2)]) for number in (1, 3)]
    other = node(tmp_path, 2, [CLUSTER, broker(1), broker(2, "elsewhere")])
    (found,), _, index = compared(*folders, other)
    assert (found.kind, found.node, index) == (Kind.STATE, 2, 3)
    assert "that of node 1, 3 is" in found.says


def test_a_node_that_was_away_for_long_is_told_and_not_blamed(tmp_path: Path) -> None:
    commands: list[Command] = [CLUSTER, *(broker(number) for number in range(1, 8))]
    folders = [node(tmp_path, number, commands, snapshot_after=6) for number in (1, 2)]
    findings, (note,), index = compared(*folders, node(tmp_path, 3, commands[:3]))
    assert (findings, index) == ([], 8)
    assert note.startswith("node 3: its metadata ends at index 3")


def test_damage_in_the_metadata_is_named_by_node(tmp_path: Path) -> None:
    folders = [node(tmp_path, number, [CLUSTER, broker(1), broker(2)]) for number in (1, 2)]
    (path,) = (tmp_path / "node2" / "__meta").glob("*.wal")
    flip(path, 60)
    (found,), _, index = compared(*folders)
    assert (found.kind, found.node, index) == (Kind.STATE, 2, 3)
    assert "damaged at byte 0" in found.says


def test_folders_are_told_apart_by_the_nodes_that_they_are_of(tmp_path: Path) -> None:
    one, two = node(tmp_path, 1, [CLUSTER]), node(tmp_path, 2, [CLUSTER])
    assert node_folders([two.path, one.path]) == {1: one, 2: two}
    with pytest.raises(CannotLook, match="both of node 1"):
        node_folders([one.path, f"{one.path}/"])
    with pytest.raises(CannotLook, match="not a node's data folder"):
        node_folders([tmp_path])
    (tmp_path / "empty").mkdir()
    empty = NodeFolder(3, str(tmp_path / "empty"), b"")
    (found,), _, _ = compared(one, empty)
    assert "has no metadata" in found.says


def test_nothing_is_changed_in_a_folder_that_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    files = ReadOnlyFiles(tmp_path)
    file = files.open("file")
    assert file.pread(100, 0) == b"content"
    with pytest.raises(StorageFailed):
        ReadOnlyFiles(tmp_path).open("file").pwrite(b"x", 0)
    with pytest.raises(StorageFailed):
        files.remove("file")
    with pytest.raises(StorageFailed):
        files.rename("file", "other")
    file.close()
    assert (tmp_path / "file").read_bytes() == b"content"
    with pytest.raises(FileNotFoundError):
        files.create("new")
    assert not ReadOnlyFiles(tmp_path / "nowhere").list_folder("")
    assert not (tmp_path / "nowhere").exists()


def test_committed_offsets_are_within_their_partitions(tmp_path: Path) -> None:
    place = TopicPartition("orders", 0)
    bounds, partitions = {place: Bounds(10, 50)}, {"orders": 1, "others": 2}

    def told(offset: int, of: TopicPartition = place) -> list[Finding | str]:
        return list(compare_groups({"readers": {of: offset}}, bounds, partitions))

    assert told(10) == told(50) == []
    (beyond,) = told(51)
    assert isinstance(beyond, Finding)
    assert (beyond.kind, beyond.topic, beyond.partition, beyond.offset) == (Kind.COMMITTED_OFFSET, "orders", 0, 51)
    assert "which ends at 50" in beyond.says
    (behind,) = told(9)
    assert isinstance(behind, str)
    assert "slower than retention" in behind
    (unknown,) = told(1, TopicPartition("orders", 1))
    assert isinstance(unknown, Finding)
    assert "does not exist" in unknown.says
    assert told(1, TopicPartition("others", 1)) == []
    assert told(1000, TopicPartition(EPOCHS_TOPIC, 7)) == [], "these are epochs of sinks"
