"""The data directory of a standalone node as an import source: recovered in memory, never modified."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from chronik.broker.quarantine import TOPICS_DIRECTORY
from chronik.clock import SystemClock
from chronik.files import DiskFileSystem, FileCache
from chronik.ids import format_id
from chronik.log.config import LogConfig
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.log.partition_log import PartitionLog
from chronik.metadata.commands.envelope import encode_command
from chronik.metadata.records import Topic
from chronik.metadata.stores.journal import MetadataJournal
from chronik.migration.directory_source import DirectorySource
from chronik.migration.source import MigrationError
from chronik.node.data_directory import LOCK_FILE, SYNCED_OFFSETS_FILE
from chronik.node.identity import DIRECTORY_FORMAT, IDENTITY_FILE, DirectoryIdentity, DirectoryMode
from chronik.protocol.batch import parse_header
from tests.files.test_overlay import snapshot_directory
from tests.metadata.metadata_world import MetadataWorld, build_id
from tests.migration.memory_logs import build_batch


def write_identity(files: DiskFileSystem, mode: DirectoryMode) -> None:
    identity = DirectoryIdentity(1, format_id(build_id(1)), mode, format=DIRECTORY_FORMAT)
    (Path(files.root) / IDENTITY_FILE).write_bytes(msgspec.json.encode(identity))


def standalone(path: Path, *batches: bytes) -> Topic:
    """Create the data directory of a node with one topic, whose only partition has these batches."""
    files = DiskFileSystem(path)
    files.lock(LOCK_FILE).close()
    write_identity(files, DirectoryMode.STANDALONE)
    world = MetadataWorld(1)
    topic = world.create("orders")
    journal = MetadataJournal(files)
    journal.recover()
    journal.write([encode_command(envelope) for envelope in world.envelopes])
    journal.close()
    directory, cache = f"{TOPICS_DIRECTORY}/{format_id(topic.id)}/0", FileCache(files)
    log = PartitionLog.open(files, cache, directory, LogConfig(), SystemClock())
    for each in batches:
        buffer = bytearray(each)
        log.append(buffer, [parse_header(buffer)], leader_epoch=4)
    log.close()
    synced = SyncedOffsets(files, SYNCED_OFFSETS_FILE)
    synced.record(topic.id, 0, log.synced_offset)
    synced.close()
    cache.close()
    return topic


def find_segment(path: Path) -> Path:
    (segment,) = path.rglob("*.log")
    return segment


def test_torn_tail_is_truncated_in_memory_only(tmp_path: Path) -> None:
    topic = standalone(tmp_path, build_batch(0, 3), build_batch(0, producer=7))
    with find_segment(tmp_path).open("ab") as file:
        file.write(build_batch(4)[:-5])
    before = snapshot_directory(tmp_path)
    source = DirectorySource(tmp_path)
    log = source.log(source.image.topics["orders"], 0)
    assert [each.name for each in source.topics()] == ["orders"]
    assert source.image.topics["orders"].id == topic.id
    assert (log.start, log.end, log.last_epoch, log.producer_ids) == (0, 4, 4, 8)
    assert parse_header(log.read(3, 1000)).producer_id == 7
    source.close()
    assert snapshot_directory(tmp_path) == before


def test_source_id_changes_when_node_was_restarted(tmp_path: Path) -> None:
    standalone(tmp_path / "a")
    standalone(tmp_path / "b")
    ids = []
    for name in ("a", "a", "b"):
        source = DirectorySource(tmp_path / name)
        ids.append(source.id)
        source.close()
    assert ids[0] == ids[1] == ids[2]
    world = MetadataWorld(1)
    world.create("orders")
    world.register(1, incarnation_number=1)
    journal = MetadataJournal(DiskFileSystem(tmp_path / "a"))
    journal.recover()
    journal.write([encode_command(world.envelopes[-1])])
    journal.close()
    source = DirectorySource(tmp_path / "a")
    assert source.id != ids[0]
    source.close()


def test_log_with_lost_records_is_rejected(tmp_path: Path) -> None:
    standalone(tmp_path, build_batch(0, 3), build_batch(0))
    find_segment(tmp_path).write_bytes(b"")
    source = DirectorySource(tmp_path)
    with pytest.raises(
        MigrationError, match="offsets 0 to 3 of orders-0 were synced once but are missing on this disk"
    ):
        source.log(source.image.topics["orders"], 0)
    source.close()


def test_directory_of_no_standalone_node_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(MigrationError, match=r"is not the data directory of a node: it has no \.lock"):
        DirectorySource(tmp_path)
    files = DiskFileSystem(tmp_path)
    lock = files.lock(LOCK_FILE)
    with pytest.raises(MigrationError, match="is in use: stop the node first"):
        DirectorySource(tmp_path)
    lock.close()
    with pytest.raises(MigrationError, match=r"it has no node\.json"):
        DirectorySource(tmp_path)
    write_identity(files, DirectoryMode.CLUSTER)
    with pytest.raises(MigrationError, match="of a node of a cluster: back up and restore that cluster"):
        DirectorySource(tmp_path)
