"""A folder in which a newer version was started: refused and untouched if its metadata was raised to a level that this
version does not know, and taken back if not."""

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
from chronik.node.data_folder import DataFolder
from chronik.node.identity import METADATA_FOLDERS, Mode
from chronik.quorum.disk_records import encode_entry, encode_hard_state
from chronik.raft.entries import Entry, EntryKind, HardState
from chronik.wal.log import WriteAheadLog
from tests.metadata.world import LIFE
from tests.node.test_the_wrong_start_costs_nothing import snapshot

OURS, NEWER = levels.HIGHEST, levels.HIGHEST + 1
SENTENCE = rf"is at chronik\.version {NEWER}, and this version of Chronik supports {OURS} at most: start the node with"


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Undone, what is left is this version."""
    monkeypatch.setattr(levels, "HIGHEST", NEWER)
    return monkeypatch


def raised(level: int) -> bytes:
    return encode_command(Envelope(1, LIFE, 1, 0, SetFeatureLevel(levels.FEATURE, level)))


def started(path: Path, mode: Mode = Mode.STANDALONE, *, restore_identity: bool = False) -> DataFolder:
    folder = DataFolder(path, 1, mode, restore_identity=restore_identity)
    try:
        folder.open()
        return folder
    finally:
        folder.close()


def stored(path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((path / "node.json").read_bytes())
    return found


def alone(path: Path, *, snapshot_entries: int = 100) -> None:
    """What a standalone node writes that begins at its highest level."""

    async def run() -> None:
        store = LocalStore(started(path).files, snapshot_entries=snapshot_entries)
        await store.start()
        for number in range(3):
            await store.propose(SetFeatureLevel("another", number + 1))
        await store.close()

    asyncio.run(run())


def clustered(path: Path, *commands: bytes, records: Sequence[bytes] = ()) -> None:
    """A Raft log with these commands, and these records before them."""
    log, _ = WriteAheadLog.open(started(path, Mode.CLUSTER).files, METADATA_FOLDERS[Mode.CLUSTER])
    entries = [Entry(index, 1, EntryKind.COMMAND, data) for index, data in enumerate(commands, 2)]
    log.append([encode_hard_state(HardState(1, 1, 1)), encode_entry(Entry(1, 1, EntryKind.NOOP, b""))])
    log.append([*records, *map(encode_entry, entries)])
    log.close()


@pytest.mark.parametrize("snapshot_entries", [100, 2])
def test_a_standalone_folder_that_was_raised_is_refused(
    tmp_path: Path, newer: pytest.MonkeyPatch, snapshot_entries: int
) -> None:
    alone(tmp_path, snapshot_entries=snapshot_entries)
    newer.undo()
    before = snapshot(tmp_path)
    with pytest.raises(ConfigError, match=SENTENCE):
        started(tmp_path)
    assert snapshot(tmp_path) == before


def test_a_folder_of_a_cluster_that_was_raised_is_refused(tmp_path: Path, newer: pytest.MonkeyPatch) -> None:
    clustered(tmp_path, encode_command(Envelope(1, LIFE, 1, 0, SetFeatureLevel("another", 9))), raised(NEWER))
    newer.undo()
    before = snapshot(tmp_path)
    with pytest.raises(ConfigError, match=SENTENCE):
        started(tmp_path, Mode.CLUSTER)
    assert snapshot(tmp_path) == before


def test_also_when_what_came_with_the_level_is_in_it(tmp_path: Path, newer: pytest.MonkeyPatch) -> None:
    clustered(tmp_path, raised(NEWER), b"\x95\x01\xc4\x00\x01\x00\x92\x63\x01")
    newer.undo()
    with pytest.raises(ConfigError, match=SENTENCE):
        started(tmp_path, Mode.CLUSTER)


def test_and_records_of_a_kind_that_came_later(tmp_path: Path, newer: pytest.MonkeyPatch) -> None:
    kind_of_entry = bytearray(encode_entry(Entry(2, 1, EntryKind.NOOP, b"what came later")))
    kind_of_entry[17] = 99
    clustered(tmp_path, raised(NEWER), records=[b"\x63what came later", bytes(kind_of_entry)])
    newer.undo()
    with pytest.raises(ConfigError, match=SENTENCE):
        started(tmp_path, Mode.CLUSTER)


@pytest.mark.parametrize("mode", list(Mode))
def test_a_folder_that_was_not_raised_is_taken_back(tmp_path: Path, newer: pytest.MonkeyPatch, mode: Mode) -> None:
    newer.undo()
    if mode is Mode.STANDALONE:
        alone(tmp_path)
    else:
        clustered(tmp_path)
    before = stored(tmp_path)
    newer.setattr(levels, "HIGHEST", NEWER)
    started(tmp_path, mode)
    assert stored(tmp_path) == before | {"level": NEWER}
    newer.undo()
    for _ in range(2):
        started(tmp_path, mode)
        assert stored(tmp_path) == before | {"level": NEWER}
    assert before["level"] == levels.HIGHEST


def test_a_folder_that_others_raised_after_it_was_taken_back_is_refused(
    tmp_path: Path, newer: pytest.MonkeyPatch
) -> None:
    started(tmp_path, Mode.CLUSTER)
    newer.undo()
    clustered(tmp_path, raised(NEWER))
    before = snapshot(tmp_path)
    with pytest.raises(ConfigError, match=SENTENCE):
        started(tmp_path, Mode.CLUSTER)
    assert snapshot(tmp_path) == before


def test_what_a_newer_version_has_added_to_node_json_is_passed_over(tmp_path: Path) -> None:
    alone(tmp_path)
    before = stored(tmp_path)
    (tmp_path / "node.json").write_text(json.dumps(before | {"colour": "red"}))
    assert started(tmp_path).cluster_id == before.get("cluster_id")


@pytest.mark.parametrize("mode", list(Mode))
def test_a_lost_node_json_hides_nothing(tmp_path: Path, newer: pytest.MonkeyPatch, mode: Mode) -> None:
    if mode is Mode.STANDALONE:
        alone(tmp_path)
    else:
        clustered(tmp_path, raised(NEWER))
    (tmp_path / "node.json").unlink()
    newer.undo()
    before = snapshot(tmp_path)
    with pytest.raises(ConfigError, match=SENTENCE):
        started(tmp_path, mode, restore_identity=True)
    assert snapshot(tmp_path) == before
