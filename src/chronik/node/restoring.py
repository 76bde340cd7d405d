"""What the metadata in a folder says about the folder itself, for one whose `node.json` is lost."""

from __future__ import annotations

from chronik.errors import ConfigError
from chronik.files import FileSystem
from chronik.node.identity import METADATA_FOLDERS, Mode


def known_directory(files: FileSystem, node_id: int, mode: Mode) -> bytes:
    """The directory id under which this node's disk is known. Raises ConfigError, DataDamaged."""
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
    """The newest membership on this disk, committed or not: it was given to nobody else."""
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
