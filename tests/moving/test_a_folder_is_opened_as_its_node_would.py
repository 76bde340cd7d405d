"""A standalone folder is recovered as its node would recover it, in memory: torn tails are cut, and nothing changes."""

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
    """Makes the folder of a node with one topic of one partition, which holds these."""
    files = RealFiles(path)
    files.lock(LOCK_FILE).close()
    write_identity(files, Mode.STANDALONE)
    world = World(1)
    topic = world.create("orders")
    journal = Journal(files)
    journal.recover()
    journal.write([encode_command(envelope) for envelope in world.envelopes])
    journal.close()
    folder, cache = f"{TOPICS_FOLDER}/{format_id(topic.id)}/0", FileCache(files)
    log = PartitionLog.open(files, cache, folder, LogConfig(), SystemClock())
    for each in batches:
        buffer = bytearray(each)
        log.append(buffer, [parse_header(buffer)], leader_epoch=4)
    log.close()
    synced = SyncedOffsets(files, SYNCED_OFFSETS_FILE)
    synced.record(topic.id, 0, log.synced_offset)
    synced.close()
    cache.close()
    return topic


def segment_of(path: Path) -> Path:
    (segment,) = path.rglob("*.log")
    return segment


def test_a_torn_tail_is_cut_in_memory_only(tmp_path: Path) -> None:
    topic = standalone(tmp_path, batch(0, 3), batch(0, producer=7))
    with segment_of(tmp_path).open("ab") as file:
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


def test_its_id_is_another_when_its_node_was_started_again(tmp_path: Path) -> None:
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


def test_a_log_that_has_lost_records_is_refused(tmp_path: Path) -> None:
    standalone(tmp_path, batch(0, 3), batch(0))
    segment_of(tmp_path).write_bytes(b"")
    source = StandaloneFolder(tmp_path)
    with pytest.raises(CannotMove, match="offsets 0 to 3 of orders-0 were synced once and are gone from this disk"):
        source.log(source.image.topics["orders"], 0)
    source.close()


def test_what_is_no_folder_of_a_standalone_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotMove, match=r"is not the data folder of a node: it has no \.lock"):
        StandaloneFolder(tmp_path)
    files = RealFiles(tmp_path)
    lock = files.lock(LOCK_FILE)
    with pytest.raises(CannotMove, match="is in use: stop the node first"):
        StandaloneFolder(tmp_path)
    lock.close()
    with pytest.raises(CannotMove, match=r"it has no node\.json"):
        StandaloneFolder(tmp_path)
    write_identity(files, Mode.CLUSTER)
    with pytest.raises(CannotMove, match="of a node of a cluster: back that cluster up, and restore it here"):
        StandaloneFolder(tmp_path)
