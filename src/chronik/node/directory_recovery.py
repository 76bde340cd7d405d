"""Facts about a data directory from its metadata, if `node.json` is lost or was written by a newer version."""

from __future__ import annotations

from chronik.errors import ConfigError, DamagedDataError
from chronik.files import FileSystem, read_file
from chronik.metadata import levels
from chronik.node.identity import METADATA_DIRECTORIES, DirectoryMode


def directory_id_from_metadata(files: FileSystem, node_id: int, mode: DirectoryMode) -> bytes:
    """Return the directory id of this node according to the metadata.

    Raises:
        ConfigError: The metadata does not contain the node.
        DamagedDataError: The metadata is damaged.
    """
    found = (
        _known_in_standalone(files, node_id) if mode is DirectoryMode.STANDALONE else _known_in_cluster(files, node_id)
    )
    if found is None:
        raise ConfigError(
            f"the metadata in {METADATA_DIRECTORIES[mode]} does not contain node {node_id}: check node_id"
        )
    return found


def _known_in_standalone(files: FileSystem, node_id: int) -> bytes | None:
    from chronik.metadata.stores.journal import MetadataJournal

    journal = MetadataJournal(files)
    try:
        broker = journal.recover().brokers.get(node_id)
    finally:
        journal.close()
    return None if broker is None else broker.directory_id


def _known_in_cluster(files: FileSystem, node_id: int) -> bytes | None:
    """Return the directory id in the newest membership on this disk, committed or not: the id is never reused."""
    from chronik.quorum.storage import RaftStorage
    from chronik.raft.entries import EntryKind
    from chronik.raft.membership import UNBOUND_DIRECTORY, decode_membership

    storage = RaftStorage.open(files, METADATA_DIRECTORIES[DirectoryMode.CLUSTER])
    try:
        recovered = storage.recovered
        membership = recovered.snapshot.membership
        for index in range(recovered.compacted_index + 1, recovered.last_index + 1):
            entry = storage.entries(index, index + 1, 0)[0]
            if entry.kind is EntryKind.MEMBERSHIP:
                membership = decode_membership(entry.data)
    finally:
        storage.close()
    member = membership.get(node_id)
    return None if member is None or member.directory_id == UNBOUND_DIRECTORY else member.directory_id


def highest_feature_level(files: FileSystem, mode: DirectoryMode) -> int:
    """Return the highest feature level in the metadata, committed or not, without writing anything.

    Anything that a newer version has added is ignored. A level counts as soon as it is in the log, even if the command
    failed when it was applied. So a readable directory may be rejected, but an unreadable one is never accepted.

    Raises:
        DamagedDataError: The metadata is damaged.
    """
    from chronik.metadata.commands.cluster import SET_FEATURE_LEVEL_TAG
    from chronik.metadata.snapshot_entries import FEATURE_TAG
    from chronik.wal import log, snapshots
    from chronik.wal.file_names import indexed_path, list_indexes
    from chronik.wal.records import scan_records

    folder, level = METADATA_DIRECTORIES[mode], levels.FIRST_LEVEL
    for index in list_indexes(folder, snapshots.SNAPSHOT_SUFFIX, files):
        for chunk in snapshots.read_snapshot(files, folder, index):
            level = max(level, levels.peek_level(chunk, FEATURE_TAG))
    for first_index in list_indexes(folder, log.SEGMENT_SUFFIX, files):
        data = read_file(files, indexed_path(folder, first_index, log.SEGMENT_SUFFIX)) or b""
        for record in scan_records(memoryview(data), first_index)[0]:
            level = max(level, levels.peek_level(_command_in(record.payload, mode), SET_FEATURE_LEVEL_TAG))
    return level


def _command_in(payload: memoryview, mode: DirectoryMode) -> bytes:
    """Return the encoded command in a log record, or nothing if it contains none."""
    if mode is DirectoryMode.STANDALONE:
        return bytes(payload)
    from chronik.quorum.disk_records import decode_record
    from chronik.raft.entries import EntryKind, RaftEntry

    try:
        record = decode_record(payload)
    except DamagedDataError:  # not damaged, but a record type of a newer version
        return b""
    return record.data if isinstance(record, RaftEntry) and record.kind is EntryKind.COMMAND else b""
