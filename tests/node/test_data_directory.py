"""Checks of the data directory at start: a wrong one is rejected unchanged; quarantined directories are restored.

A directory used by a newer version is rejected unchanged if its feature level is unsupported.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from chronik.broker.quarantine import (
    DELETED_RETENTION_MS,
    MARK_FILE,
    Quarantine,
    QuarantineMark,
    parse_quarantined_name,
)
from chronik.errors import ConfigError, DamagedDataError
from chronik.files import DiskFileSystem
from chronik.ids import format_id, generate_id
from chronik.metadata import levels
from chronik.metadata.commands.cluster import SetFeatureLevel
from chronik.metadata.commands.envelope import Envelope, encode_command
from chronik.metadata.stores.local_store import LocalStore
from chronik.node.data_directory import DataDirectory
from chronik.node.identity import DIRECTORY_FORMAT, METADATA_DIRECTORIES, DirectoryIdentity, DirectoryMode
from chronik.quorum.stored_entries import encode_entry, encode_hard_state
from chronik.raft.entries import EntryKind, HardState, RaftEntry
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from chronik.wal.log import WriteAheadLog
from tests.api.request_builders import batch, produce
from tests.metadata.metadata_world import NODE_INCARNATION
from tests.raw import RawClient

DEADLINE_SECONDS = 60

# Deletion of quarantined directories


TOPIC, CLUSTER = format_id(bytes(range(16))), "a-cluster"

CURRENT, NEWER = levels.HIGHEST, levels.HIGHEST + 1
MESSAGE = (
    rf"is at chronik\.version {NEWER}, and this version of Chronik supports {CURRENT} at most: start the node with"
)


VALUES = [b"value %d" % number for number in range(5)]


def start_node(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CHRONIK_")}
    return subprocess.run(
        [sys.executable, "-m", "chronik", "start", "--kafka", "127.0.0.1:0", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        env=environment,
    )


def start_error(*arguments: str) -> str:
    """Return the line with which a node rejects its data directory."""
    finished = start_node(*arguments)
    assert finished.returncode == 2, finished.stderr
    (line,) = [line for line in finished.stderr.splitlines() if line.startswith("chronik:")]
    assert "Traceback" not in finished.stderr
    return line


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def stopped(chronik_broker_factory: BrokerFactory) -> Broker:
    """A stopped broker with VALUES in `topic`."""
    broker = chronik_broker_factory()
    broker.create_topic("topic")
    with RawClient(broker.bootstrap) as client:
        for value in VALUES:
            assert not produce(client, "topic", batch(value)).error_code
    broker.stop()
    return broker


def cluster_config(folder: Path) -> Path:
    path = folder / "cluster.toml"
    path.write_text('[[peers]]\nid = 1\nkafka = "127.0.0.1:1"\nraft = "127.0.0.1:0"\n')
    return path


def values_of(broker: Broker) -> list[bytes | None]:
    return [record.value for record in broker.records("topic")]


def downgrade_identity(data_dir: Path) -> None:
    """Write `node.json` as versions did that did not store the mode."""
    identity = json.loads((data_dir / "node.json").read_bytes())
    kept = {"node_id": identity["node_id"], "directory_id": identity["directory_id"]}
    (data_dir / "node.json").write_text(json.dumps(kept))


@pytest.mark.parametrize("is_older", [False, True])
def test_standalone_directory_is_rejected_in_cluster_mode(stopped: Broker, tmp_path: Path, is_older: bool) -> None:
    if is_older:
        downgrade_identity(stopped.data_dir)
    before = read_files(stopped.data_dir)
    line = start_error("--config", str(cluster_config(tmp_path)), "--data", str(stopped.data_dir))
    assert "is the data directory of a standalone node" in line
    assert read_files(stopped.data_dir) == before
    stopped.start()
    assert values_of(stopped) == VALUES


def test_first_start_stores_mode_and_cluster_id(stopped: Broker) -> None:
    stopped.start()
    with stopped.cluster() as client:
        cluster_id = client.metadata([]).cluster_id
    identity = msgspec.json.decode((stopped.data_dir / "node.json").read_bytes(), type=DirectoryIdentity)
    assert (identity.mode, identity.cluster_id, identity.format) == (
        DirectoryMode.STANDALONE,
        cluster_id,
        DIRECTORY_FORMAT,
    )


def test_directory_of_older_format_is_upgraded(stopped: Broker) -> None:
    before = (stopped.data_dir / "node.json").read_bytes()
    downgrade_identity(stopped.data_dir)
    stopped.start()
    assert (stopped.data_dir / "node.json").read_bytes() == before
    assert values_of(stopped) == VALUES


def test_directory_of_newer_format_is_rejected(stopped: Broker) -> None:
    path = stopped.data_dir / "node.json"
    path.write_text(
        json.dumps(json.loads(path.read_bytes()) | {"format": DIRECTORY_FORMAT + 1, "what": "nobody knows yet"})
    )
    assert f"format {DIRECTORY_FORMAT + 1}" in start_error("--data", str(stopped.data_dir))


def test_invalid_node_json_is_reported_as_damage(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text("{}")
    with pytest.raises(DamagedDataError, match=r"node\.json"):
        DataDirectory(tmp_path, 1, DirectoryMode.STANDALONE).open()


def test_lost_node_json_is_rejected_and_can_be_restored(stopped: Broker) -> None:
    path = stopped.data_dir / "node.json"
    identity = json.loads(path.read_bytes())
    path.unlink()
    before = read_files(stopped.data_dir)
    assert "has lost its node.json" in start_error("--data", str(stopped.data_dir))
    assert read_files(stopped.data_dir) == before
    folder = DataDirectory(stopped.data_dir, 1, DirectoryMode.STANDALONE, restore_identity=True)
    folder.open()
    folder.close()
    assert json.loads(path.read_bytes())["directory_id"] == identity["directory_id"]
    stopped.start()
    assert values_of(stopped) == VALUES


def test_restore_identity_option_restores_lost_node_json(stopped: Broker) -> None:
    (stopped.data_dir / "node.json").unlink()
    line = start_error("--data", str(stopped.data_dir), "--restore-identity", "--node-id", "7")
    assert "does not contain node 7" in line
    data = str(stopped.data_dir)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CHRONIK_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "chronik", "start", "--kafka", "127.0.0.1:0", "--restore-identity", "--data", data],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stderr is not None
    try:
        assert any("answers Kafka clients" in line for line in process.stderr)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    stopped.start()
    assert values_of(stopped) == VALUES


def test_directory_with_topics_but_lost_metadata_is_rejected(stopped: Broker, tmp_path: Path) -> None:
    shutil.move(stopped.data_dir / "__meta", tmp_path / "elsewhere")
    assert "has lost its metadata (__meta)" in start_error("--data", str(stopped.data_dir))
    shutil.move(tmp_path / "elsewhere", stopped.data_dir / "__meta")
    stopped.start()
    assert values_of(stopped) == VALUES


def test_node_json_of_another_node_is_rejected(
    stopped: Broker, chronik_broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    other = chronik_broker_factory(data_dir=tmp_path / "other")
    other.stop()
    own = (stopped.data_dir / "node.json").read_bytes()
    (stopped.data_dir / "node.json").write_bytes((tmp_path / "other" / "node.json").read_bytes())
    assert "belongs to cluster" in start_error("--data", str(stopped.data_dir))
    downgrade_identity(stopped.data_dir)  # one that does not name its cluster
    assert "but the metadata has" in start_error("--data", str(stopped.data_dir))
    (stopped.data_dir / "node.json").write_bytes(own)
    stopped.start()
    assert values_of(stopped) == VALUES


def test_metadata_of_another_cluster_is_rejected(
    stopped: Broker, chronik_broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    other = chronik_broker_factory(data_dir=tmp_path / "other")
    other.stop()
    shutil.move(stopped.data_dir / "__meta", tmp_path / "own")
    shutil.copytree(tmp_path / "other" / "__meta", stopped.data_dir / "__meta")
    assert "belongs to cluster" in start_error("--data", str(stopped.data_dir))
    shutil.rmtree(stopped.data_dir / "__meta")
    shutil.move(tmp_path / "own", stopped.data_dir / "__meta")
    stopped.start()
    assert values_of(stopped) == VALUES


def test_topics_quarantined_by_mistake_are_restored(stopped: Broker) -> None:
    """The node was once started in cluster mode, which left metadata of both modes."""
    downgrade_identity(stopped.data_dir)
    shutil.copytree(stopped.data_dir / "__meta", stopped.data_dir / "__raft")
    (stopped.data_dir / "topics").rename(stopped.data_dir / "unknown")
    stopped.start()
    assert values_of(stopped) == VALUES
    assert not list((stopped.data_dir / "unknown").iterdir())
    assert " restored from unknown/" in stopped.log


def test_newer_records_are_not_replaced_by_quarantined_ones(stopped: Broker) -> None:
    shutil.copytree(stopped.data_dir / "topics", stopped.data_dir / "unknown")
    stopped.start()
    assert values_of(stopped) == VALUES
    assert list(stopped.data_dir.glob("unknown/*/0/*.log"))
    assert "has new records" in stopped.log


def test_first_start_decides_mode_of_directory_with_both_metadata(tmp_path: Path) -> None:
    for name in ("__meta", "__raft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000001.wal").write_bytes(b"something")
    (tmp_path / "node.json").write_text(json.dumps({"node_id": 1, "directory_id": format_id(generate_id())}))
    folder = DataDirectory(tmp_path, 1, DirectoryMode.CLUSTER)
    folder.open()
    folder.close()
    with pytest.raises(ConfigError, match='change it to "standalone"'):
        DataDirectory(tmp_path, 1, DirectoryMode.STANDALONE).open()


def quarantine(folder: Path, mark: QuarantineMark | None) -> tuple[DiskFileSystem, Quarantine]:
    files = DiskFileSystem(folder)
    files.make_directory(f"topics/{TOPIC}/0")
    log = files.create(f"topics/{TOPIC}/0/00000000000000000000.log")
    log.append(b"records")
    log.close()
    quarantined = Quarantine(files)
    quarantined.move_directory(TOPIC, "unknown", mark)
    return files, quarantined


def test_deleted_topic_is_quarantined_for_a_week(tmp_path: Path) -> None:
    files, quarantined = quarantine(tmp_path, QuarantineMark(CLUSTER, 1000))
    quarantined.delete_expired_directories(CLUSTER, 1000 + DELETED_RETENTION_MS - 1)
    assert files.list_directory("unknown") == [TOPIC]
    quarantined.delete_expired_directories(CLUSTER, 1000 + DELETED_RETENTION_MS)
    assert (files.list_directory("unknown"), files.list_directory("deleted")) == ([], [TOPIC])


@pytest.mark.parametrize("mark", [None, QuarantineMark("another-cluster", 0)])
def test_quarantined_topic_without_known_deletion_is_never_deleted(tmp_path: Path, mark: QuarantineMark | None) -> None:
    files, quarantined = quarantine(tmp_path, mark)
    quarantined.delete_expired_directories(CLUSTER, 100 * DELETED_RETENTION_MS)
    assert files.list_directory("unknown") == [TOPIC]


def test_restored_topic_loses_its_deletion_mark(tmp_path: Path) -> None:
    files, quarantined = quarantine(tmp_path, QuarantineMark(CLUSTER, 1000))
    quarantined.restore(TOPIC, [0])
    assert files.list_directory("unknown") == []
    assert files.list_directory(f"topics/{TOPIC}") == ["0"]
    assert not files.exists(f"topics/{TOPIC}/{MARK_FILE}")


def test_only_partitions_assigned_to_this_node_are_restored(tmp_path: Path) -> None:
    files, quarantined = quarantine(tmp_path, None)
    quarantined.restore(TOPIC, [1])
    assert files.list_directory(f"unknown/{TOPIC}") == ["0"]


def test_directory_without_partition_number_stays_quarantined(tmp_path: Path) -> None:
    files, quarantined = quarantine(tmp_path, None)
    for name in ("²", "٣"):
        files.make_directory(f"unknown/{TOPIC}/{name}")
    quarantined.restore(TOPIC, [0, 2, 3])
    assert files.list_directory(f"unknown/{TOPIC}") == ["²", "٣"]


@pytest.mark.parametrize("name", ["", "lost+found", TOPIC[:-1], f"{TOPIC}-x", f"{TOPIC}-²", f"{TOPIC}0", f"{TOPIC}-"])
def test_foreign_directory_names_are_ignored(name: str) -> None:
    assert parse_quarantined_name(name) is None


def test_quarantine_directory_names_are_parsed() -> None:
    whole, again, part = (
        parse_quarantined_name(TOPIC),
        parse_quarantined_name(f"{TOPIC}~2"),
        parse_quarantined_name(f"{TOPIC}-12~3"),
    )
    assert whole == again
    assert whole is not None
    assert whole.partition is None
    assert part is not None
    assert part.partition == "12"


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
