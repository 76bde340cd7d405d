"""Facts about a data directory from its metadata, if `node.json` is lost or was written by a newer version."""

from __future__ import annotations

from chronik.errors import ConfigError, DataDamaged
from chronik.files import FileSystem, read_file
from chronik.metadata import levels
from chronik.node.identity import METADATA_FOLDERS, Mode


def known_directory(files: FileSystem, node_id: int, mode: Mode) -> bytes:
    """Return the directory id of this node according to the metadata.

    Raises:
        ConfigError: The metadata does not contain the node.
        DamagedDataError: The metadata is damaged.
    """
    found = _known_in_standalone(files, node_id) if mode is Mode.STANDALONE else _known_in_cluster(files, node_id)
    if found is None:
        raise ConfigError(f"the metadata in {METADATA_FOLDERS[mode]} does not contain node {node_id}: check node_id")
    return found


def _known_in_standalone(files: FileSystem, node_id: int) -> bytes | None:
    from chronik.metadata.stores.journal import Journal

    journal = Journal(files)
    try:
        broker = journal.recover().brokers.get(node_id)
    finally:
        journal.close()
    return None if broker is None else broker.directory_id


def _known_in_cluster(files: FileSystem, node_id: int) -> bytes | None:
    """Return the directory id in the newest membership on this disk, committed or not: the id is never reused."""
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
    """Return the highest feature level in the metadata, committed or not, without writing anything.

    Anything that a newer version has added is ignored. A level counts as soon as it is in the log, even if the command
    failed when it was applied. So a readable directory may be rejected, but an unreadable one is never accepted.

    Raises:
        DamagedDataError: The metadata is damaged.
    """
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
    """Return the encoded command in a log record, or nothing if it contains none."""
    if mode is Mode.STANDALONE:
        return bytes(payload)
    from chronik.quorum.disk_records import decode_record
    from chronik.raft.entries import Entry, EntryKind

    try:
        record = decode_record(payload)
    except DataDamaged:  # not damaged, but a record type of a newer version
        return b""
    return record.data if isinstance(record, Entry) and record.kind is EntryKind.COMMAND else b""
