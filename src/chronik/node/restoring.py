"""What the metadata in a folder says about the folder itself, for one whose `node.json` is lost, or was written by a
newer version."""

from __future__ import annotations

from chronik.errors import ConfigError, DataDamaged
from chronik.files import FileSystem, read_file
from chronik.metadata import levels
from chronik.node.identity import METADATA_FOLDERS, Mode


def known_directory(files: FileSystem, node_id: int, mode: Mode) -> bytes:
    """Returns the directory id under which this node's disk is known. Raises ConfigError, DataDamaged."""
    found = _known_standing_alone(files, node_id) if mode is Mode.STANDALONE else _known_in_cluster(files, node_id)
    if found is None:
        raise ConfigError(f"the metadata in {METADATA_FOLDERS[mode]} does not know node {node_id}: is node_id right?")
    return found


def _known_standing_alone(files: FileSystem, node_id: int) -> bytes | None:
    from chronik.metadata.stores.journal import Journal

    journal = Journal(files)
    try:
        broker = journal.recover().brokers.get(node_id)
    finally:
        journal.close()
    return None if broker is None else broker.directory_id


def _known_in_cluster(files: FileSystem, node_id: int) -> bytes | None:
    """Looks in the newest membership on this disk, committed or not: its id was given to nobody else."""
    from chronik.quorum.storage import RaftStorage
    from chronik.raft.entries import EntryKind
    from chronik.raft.membership import UNBOUND, decode_membership

    storage = RaftStorage.open(files, METADATA_FOLDERS[Mode.CLUSTER])
    try:
        recovered = storage.recovered
        membership = recovered.snapshot.membership
        for index in range(recovered.floor_index + 1, recovered.last_index + 1):
            entry = storage.entries(index, index + 1, 0)[0]
            if entry.kind is EntryKind.MEMBERSHIP:
                membership = decode_membership(entry.data)
    finally:
        storage.close()
    member = membership.get(node_id)
    return None if member is None or member.directory_id == UNBOUND else member.directory_id


def level_raised_to(files: FileSystem, mode: Mode) -> int:
    """Returns the level of the metadata, committed or not. It writes nothing, and ignores what a newer version has
    added. A raise counts as soon as it is in the log, also one that came to nothing because a broker without the level
    registered just before: so a readable folder may be refused, and never an unreadable one accepted. Raises
    DataDamaged."""
    from chronik.metadata.commands.cluster import SET_FEATURE_LEVEL_TAG
    from chronik.metadata.entries import FEATURE_TAG
    from chronik.wal import log, snapshots
    from chronik.wal.file_names import indexed_path, indexes_in
    from chronik.wal.records import scan

    folder, level = METADATA_FOLDERS[mode], levels.FIRST
    for index in indexes_in(folder, snapshots.SUFFIX, files):
        for chunk in snapshots.read_snapshot(files, folder, index):
            level = max(level, levels.level_told_by(chunk, FEATURE_TAG))
    for first_index in indexes_in(folder, log.SUFFIX, files):
        data = read_file(files, indexed_path(folder, first_index, log.SUFFIX)) or b""
        for record in scan(memoryview(data), first_index)[0]:
            level = max(level, levels.level_told_by(_command_in(record.payload, mode), SET_FEATURE_LEVEL_TAG))
    return level


def _command_in(payload: memoryview, mode: Mode) -> bytes:
    """Returns nothing for a record that holds none."""
    if mode is Mode.STANDALONE:
        return bytes(payload)
    from chronik.quorum.disk_records import decode_record
    from chronik.raft.entries import Entry, EntryKind

    try:
        record = decode_record(payload)
    except DataDamaged:  # it is as it was written: of a kind that came later
        return b""
    return record.data if isinstance(record, Entry) and record.kind is EntryKind.COMMAND else b""
