"""Data directories used by a newer version: rejected unchanged if their feature level is unsupported, else accepted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from chronik.errors import ConfigError
from chronik.metadata import levels
from chronik.metadata.commands.cluster import SetFeatureLevel
from chronik.metadata.commands.envelope import Envelope, encode_command
from chronik.metadata.stores.local_store import LocalStore
from chronik.node.data_directory import DataDirectory
from chronik.node.identity import METADATA_DIRECTORIES, DirectoryMode
from chronik.quorum.disk_records import encode_entry, encode_hard_state
from chronik.raft.entries import EntryKind, HardState, RaftEntry
from chronik.wal.log import WriteAheadLog
from tests.metadata.metadata_world import NODE_INCARNATION
from tests.node.test_data_directory import read_files

CURRENT, NEWER = levels.HIGHEST, levels.HIGHEST + 1
MESSAGE = (
    rf"is at chronik\.version {NEWER}, and this version of Chronik supports {CURRENT} at most: start the node with"
)


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Simulate a newer version until `undo` is called."""
    monkeypatch.setattr(levels, "HIGHEST", NEWER)
    return monkeypatch


def level_command(level: int) -> bytes:
    return encode_command(Envelope(1, NODE_INCARNATION, 1, 0, SetFeatureLevel(levels.FEATURE_NAME, level)))


def open_directory(
    path: Path, mode: DirectoryMode = DirectoryMode.STANDALONE, *, restore_identity: bool = False
) -> DataDirectory:
    folder = DataDirectory(path, 1, mode, restore_identity=restore_identity)
    try:
        folder.open()
        return folder
    finally:
        folder.close()


def read_identity(path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((path / "node.json").read_bytes())
    return found


def write_standalone(path: Path, *, snapshot_entries: int = 100) -> None:
    """Write what a standalone node writes that starts at its highest level."""

    async def run() -> None:
        store = LocalStore(open_directory(path).files, snapshot_entries=snapshot_entries)
        await store.start()
        for number in range(3):
            await store.propose(SetFeatureLevel("another", number + 1))
        await store.close()

    asyncio.run(run())


def write_cluster(path: Path, *commands: bytes, records: Sequence[bytes] = ()) -> None:
    """Write a Raft log with these commands, preceded by these records."""
    log, _ = WriteAheadLog.open(
        open_directory(path, DirectoryMode.CLUSTER).files, METADATA_DIRECTORIES[DirectoryMode.CLUSTER]
    )
    entries = [RaftEntry(index, 1, EntryKind.COMMAND, data) for index, data in enumerate(commands, 2)]
    log.append([encode_hard_state(HardState(1, 1, 1)), encode_entry(RaftEntry(1, 1, EntryKind.NOOP, b""))])
    log.append([*records, *map(encode_entry, entries)])
    log.close()


@pytest.mark.parametrize("snapshot_entries", [100, 2])
def test_standalone_directory_with_newer_level_is_rejected(
    tmp_path: Path, newer: pytest.MonkeyPatch, snapshot_entries: int
) -> None:
    write_standalone(tmp_path, snapshot_entries=snapshot_entries)
    newer.undo()
    before = read_files(tmp_path)
    with pytest.raises(ConfigError, match=MESSAGE):
        open_directory(tmp_path)
    assert read_files(tmp_path) == before


def test_cluster_directory_with_newer_level_is_rejected(tmp_path: Path, newer: pytest.MonkeyPatch) -> None:
    write_cluster(
        tmp_path,
        encode_command(Envelope(1, NODE_INCARNATION, 1, 0, SetFeatureLevel("another", 9))),
        level_command(NEWER),
    )
    newer.undo()
    before = read_files(tmp_path)
    with pytest.raises(ConfigError, match=MESSAGE):
        open_directory(tmp_path, DirectoryMode.CLUSTER)
    assert read_files(tmp_path) == before


def test_directory_with_unknown_commands_is_rejected_by_level(tmp_path: Path, newer: pytest.MonkeyPatch) -> None:
    write_cluster(tmp_path, level_command(NEWER), b"\x95\x01\xc4\x00\x01\x00\x92\x63\x01")
    newer.undo()
    with pytest.raises(ConfigError, match=MESSAGE):
        open_directory(tmp_path, DirectoryMode.CLUSTER)


def test_directory_with_unknown_record_types_is_rejected_by_level(tmp_path: Path, newer: pytest.MonkeyPatch) -> None:
    kind_of_entry = bytearray(encode_entry(RaftEntry(2, 1, EntryKind.NOOP, b"what came later")))
    kind_of_entry[17] = 99
    write_cluster(tmp_path, level_command(NEWER), records=[b"\x63what came later", bytes(kind_of_entry)])
    newer.undo()
    with pytest.raises(ConfigError, match=MESSAGE):
        open_directory(tmp_path, DirectoryMode.CLUSTER)


@pytest.mark.parametrize("mode", list(DirectoryMode))
def test_directory_used_by_newer_version_without_newer_level_is_accepted(
    tmp_path: Path, newer: pytest.MonkeyPatch, mode: DirectoryMode
) -> None:
    newer.undo()
    if mode is DirectoryMode.STANDALONE:
        write_standalone(tmp_path)
    else:
        write_cluster(tmp_path)
    before = read_identity(tmp_path)
    newer.setattr(levels, "HIGHEST", NEWER)
    open_directory(tmp_path, mode)
    assert read_identity(tmp_path) == before | {"level": NEWER}
    newer.undo()
    for _ in range(2):
        open_directory(tmp_path, mode)
        assert read_identity(tmp_path) == before | {"level": NEWER}
    assert before["level"] == levels.HIGHEST


def test_directory_is_rejected_if_level_was_raised_after_downgrade(tmp_path: Path, newer: pytest.MonkeyPatch) -> None:
    open_directory(tmp_path, DirectoryMode.CLUSTER)
    newer.undo()
    write_cluster(tmp_path, level_command(NEWER))
    before = read_files(tmp_path)
    with pytest.raises(ConfigError, match=MESSAGE):
        open_directory(tmp_path, DirectoryMode.CLUSTER)
    assert read_files(tmp_path) == before


def test_unknown_fields_in_node_json_are_ignored(tmp_path: Path) -> None:
    write_standalone(tmp_path)
    before = read_identity(tmp_path)
    (tmp_path / "node.json").write_text(json.dumps(before | {"colour": "red"}))
    assert open_directory(tmp_path).cluster_id == before.get("cluster_id")


@pytest.mark.parametrize("mode", list(DirectoryMode))
def test_newer_level_is_rejected_even_if_node_json_is_lost(
    tmp_path: Path, newer: pytest.MonkeyPatch, mode: DirectoryMode
) -> None:
    if mode is DirectoryMode.STANDALONE:
        write_standalone(tmp_path)
    else:
        write_cluster(tmp_path, level_command(NEWER))
    (tmp_path / "node.json").unlink()
    newer.undo()
    before = read_files(tmp_path)
    with pytest.raises(ConfigError, match=MESSAGE):
        open_directory(tmp_path, mode, restore_identity=True)
    assert read_files(tmp_path) == before
