"""The data directory of a standalone node as an import source: recovered in memory, never modified."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from chronik.broker.set_aside import TOPICS_FOLDER
from chronik.clock import SystemClock
from chronik.files import FileCache, RealFiles
from chronik.ids import format_id
from chronik.log.config import LogConfig
from chronik.log.files.synced import SyncedOffsets
from chronik.log.partition import PartitionLog
from chronik.metadata.commands.envelope import encode_command
from chronik.metadata.records import Topic
from chronik.metadata.stores.journal import Journal
from chronik.moving.folder import StandaloneFolder
from chronik.moving.source import CannotMove
from chronik.node.data_folder import LOCK_FILE, SYNCED_OFFSETS_FILE
from chronik.node.identity import FORMAT, IDENTITY_FILE, Identity, Mode
from chronik.protocol.batch import parse_header
from tests.files.test_an_overlay_changes_nothing import everything_in
from tests.metadata.world import World, some_id
from tests.moving.logs import batch


def write_identity(files: RealFiles, mode: Mode) -> None:
    identity = Identity(1, format_id(some_id(1)), mode, format=FORMAT)
    (Path(files.root) / IDENTITY_FILE).write_bytes(msgspec.json.encode(identity))


def standalone(path: Path, *batches: bytes) -> Topic:
    """Create the data directory of a node with one topic, whose only partition has these batches."""
    files = RealFiles(path)
    files.lock(LOCK_FILE).close()
    write_identity(files, Mode.STANDALONE)
    world = World(1)
    topic = world.create("orders")
    journal = Journal(files)
    journal.recover()
    journal.write([encode_command(envelope) for envelope in world.envelopes])
    journal.close()
    directory, cache = f"{TOPICS_FOLDER}/{format_id(topic.id)}/0", FileCache(files)
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
    topic = standalone(tmp_path, batch(0, 3), batch(0, producer=7))
    with find_segment(tmp_path).open("ab") as file:
        file.write(batch(4)[:-5])
    before = everything_in(tmp_path)
    source = StandaloneFolder(tmp_path)
    log = source.log(source.image.topics["orders"], 0)
    assert [each.name for each in source.topics()] == ["orders"]
    assert source.image.topics["orders"].id == topic.id
    assert (log.start, log.end, log.last_epoch, log.producer_ids) == (0, 4, 4, 8)
    assert parse_header(log.read(3, 1000)).producer_id == 7
    source.close()
    assert everything_in(tmp_path) == before


def test_source_id_changes_when_node_was_restarted(tmp_path: Path) -> None:
    standalone(tmp_path / "a")
    standalone(tmp_path / "b")
    ids = []
    for name in ("a", "a", "b"):
        source = StandaloneFolder(tmp_path / name)
        ids.append(source.id)
        source.close()
    assert ids[0] == ids[1] == ids[2]
    world = World(1)
    world.create("orders")
    world.register(1, life=1)
    journal = Journal(RealFiles(tmp_path / "a"))
    journal.recover()
    journal.write([encode_command(world.envelopes[-1])])
    journal.close()
    source = StandaloneFolder(tmp_path / "a")
    assert source.id != ids[0]
    source.close()


def test_log_with_lost_records_is_rejected(tmp_path: Path) -> None:
    standalone(tmp_path, batch(0, 3), batch(0))
    find_segment(tmp_path).write_bytes(b"")
    source = StandaloneFolder(tmp_path)
    with pytest.raises(CannotMove, match="offsets 0 to 3 of orders-0 were synced once but are missing on this disk"):
        source.log(source.image.topics["orders"], 0)
    source.close()


def test_directory_of_no_standalone_node_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(CannotMove, match=r"is not the data directory of a node: it has no \.lock"):
        StandaloneFolder(tmp_path)
    files = RealFiles(tmp_path)
    lock = files.lock(LOCK_FILE)
    with pytest.raises(CannotMove, match="is in use: stop the node first"):
        StandaloneFolder(tmp_path)
    lock.close()
    with pytest.raises(CannotMove, match=r"it has no node\.json"):
        StandaloneFolder(tmp_path)
    write_identity(files, Mode.CLUSTER)
    with pytest.raises(CannotMove, match="of a node of a cluster: back up and restore that cluster"):
        StandaloneFolder(tmp_path)
