"""Comparison of the nodes' metadata: each node's snapshot and log are replayed from disk, and state hashes compared.

Committed log entries are applied to the snapshot, up to the same index on all nodes; the state hashes must then be
equal. This also works while the nodes are running, since the log is append-only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Final

from chronik.config import Address
from chronik.console.http_client import HttpAccess, fetch_status
from chronik.console.image_views import format_state_hash
from chronik.console.state_comparison import compare_states
from chronik.errors import ChronikError, DamagedDataError
from chronik.files import FileSystem, read_file
from chronik.metadata.image import Image
from chronik.metadata.image_state_machine import ImageStateMachine
from chronik.metadata.snapshot import decode_snapshot
from chronik.metadata.stores.journal import METADATA_DIRECTORY as ALONE_FOLDER
from chronik.pipeline.audit.data_directories import AuditInputError, NodeDataDirectory, ReadOnlyFileSystem
from chronik.pipeline.audit.findings import Finding, FindingKind
from chronik.quorum.settings import DIRECTORY_NAME as RAFT_FOLDER
from chronik.quorum.storage import MANIFEST_NAME
from chronik.quorum.stored_entries import RaftManifest, decode_manifest, decode_record
from chronik.raft.entries import EntryKind, HardState, RaftEntry
from chronik.wal.log import SEGMENT_SUFFIX, build_segment_path
from chronik.wal.records import WalRecord, list_file_indexes, scan_records, was_position_synced
from chronik.wal.snapshots import find_newest_snapshot, read_snapshot

READ_ATTEMPTS_MAX: Final = 5
"""Maximum number of read attempts. A running node may take a snapshot and delete the log before it."""


@dataclass(frozen=True, slots=True)
class StoredMetadata:
    """The metadata stored on a node's disk: its last snapshot and the log entries after it."""

    node: int
    image: Image
    """The metadata image of the snapshot; empty without a snapshot."""
    snapshot_index: int
    """Metadata log index that the snapshot covers. It stays fixed while later entries are applied to the image."""
    entries: tuple[RaftEntry, ...]
    """The log entries after the snapshot, in order."""
    commit_index: int
    """Lower bound of the commit index, which a node stores with a delay."""

    @property
    def last_index(self) -> int:
        return self.snapshot_index + len(self.entries)


def read_stored_metadata(directory: NodeDataDirectory) -> StoredMetadata:
    """Read a node's metadata from its data directory.

    Raises:
        DamagedDataError: The snapshot or the log is damaged.
        AuditInputError: The directory has no metadata.
    """
    files = ReadOnlyFileSystem(directory.path)
    attempts = 0
    while True:
        try:
            if os.path.isdir(f"{directory.path}/{RAFT_FOLDER}"):
                return _read_raft_state(directory.node, files)
            if os.path.isdir(f"{directory.path}/{ALONE_FOLDER}"):
                return _read_standalone_state(directory.node, files)
            raise AuditInputError(f"data directory {directory.path} has no metadata log")
        except (FileNotFoundError, DamagedDataError):
            attempts += 1
            if attempts >= READ_ATTEMPTS_MAX:
                raise


def _read_raft_state(node: int, files: FileSystem) -> StoredMetadata:
    data = read_file(files, f"{RAFT_FOLDER}/{MANIFEST_NAME}")
    manifest = RaftManifest() if data is None else decode_manifest(data)
    image = Image()
    if manifest.snapshot.index:
        image = decode_snapshot(read_snapshot(files, RAFT_FOLDER, manifest.snapshot.index))
    entries: dict[int, RaftEntry] = {}
    commit = manifest.hard_state.commit
    for record in _read_wal_records(files, RAFT_FOLDER, manifest.obsolete_record):
        item = decode_record(record.payload)
        if isinstance(item, HardState):
            commit = item.commit
            continue
        entries[item.index] = item
        later = item.index + 1
        while entries.pop(later, None) is not None:  # an entry replaces all entries after it
            later += 1
    first = image.applied_index
    lagging = tuple(entries[index] for index in takewhile(entries.__contains__, count(first + 1)))
    if commit > first + len(lagging):
        raise DamagedDataError(
            f"{RAFT_FOLDER}: entries up to {commit} are committed, but the log ends at {first + len(lagging)}"
        )
    return StoredMetadata(node, image, first, lagging, max(first, commit))


def _read_standalone_state(node: int, files: FileSystem) -> StoredMetadata:
    index = find_newest_snapshot(files, ALONE_FOLDER) or 0
    image = decode_snapshot(read_snapshot(files, ALONE_FOLDER, index)) if index else Image()
    records = _read_wal_records(files, ALONE_FOLDER, index)
    entries = tuple(RaftEntry(each.index, 0, EntryKind.COMMAND, bytes(each.payload)) for each in records)
    return StoredMetadata(node, image, image.applied_index, entries, image.applied_index + len(entries))


def _read_wal_records(files: FileSystem, directory: str, after: int) -> Iterator[WalRecord]:
    """Yield the metadata log records after an index, up to the first damaged one that was never synced to disk.

    Raises:
        DamagedDataError: A synced record is damaged, or records are missing.
    """
    firsts = list_file_indexes(directory, SEGMENT_SUFFIX, files)
    for number, first in enumerate(firsts):
        path = build_segment_path(directory, first)
        data = read_file(files, path) or b""
        records, position = scan_records(memoryview(data), first)
        yield from (record for record in records if record.index > after)
        if position < len(data):
            if number < len(firsts) - 1 or was_position_synced(data, position):
                raise DamagedDataError(f"{path} is damaged at byte {position}")
            return
        if number + 1 < len(firsts) and firsts[number + 1] > first + len(records):
            raise DamagedDataError(
                f"{directory}: records {first + len(records)} to {firsts[number + 1] - 1} are missing"
            )


@dataclass(frozen=True, slots=True)
class MetadataComparison:
    """The result of comparing the metadata of all nodes."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    index: int | None
    """Metadata log index at which the nodes' states were compared, or None if they have no index in common."""
    latest_image: Image | None
    """The most recent committed metadata image found on a node, or None."""


def compare_stored_metadata(directories: Mapping[int, NodeDataDirectory]) -> MetadataComparison:
    """Compare the metadata that the nodes have on disk."""
    findings: list[Finding] = []
    states: list[StoredMetadata] = []
    for node, directory in directories.items():
        try:
            states.append(read_stored_metadata(directory))
        except (ChronikError, OSError) as error:
            findings.append(
                Finding(FindingKind.STATE, f"cannot read the metadata: {error}", node=node, file=directory.path)
            )
    if not states:
        return MetadataComparison(tuple(findings), (), None, None)
    comparable, notes = _select_comparable_states(states)
    index = _find_common_index(comparable)
    for state in comparable:
        _apply_entries(state.image, state.entries[: index - state.snapshot_index])
    hashes = {state.node: state.image.state_hash for state in comparable}
    findings += _compare_hashes(hashes, index)
    furthest = max(comparable, key=lambda state: state.commit_index)
    _apply_entries(
        furthest.image,
        furthest.entries[index - furthest.snapshot_index : furthest.commit_index - furthest.snapshot_index],
    )
    return MetadataComparison(tuple(findings), tuple(notes), index, furthest.image)


def _find_common_index(states: Sequence[StoredMetadata]) -> int:
    """Return the highest index up to which all nodes are known to have the same metadata log.

    An entry that all logs hold with the same term cannot be overwritten. The result is at least the lowest known commit
    index.
    """
    index = max(state.snapshot_index for state in states)
    end = min(state.last_index for state in states)
    while index < end and len({state.entries[index - state.snapshot_index].term for state in states}) == 1:
        index += 1
    return max(index, min(state.commit_index for state in states))


def _apply_entries(image: Image, entries: Sequence[RaftEntry]) -> None:
    machine = ImageStateMachine(lambda delta: None, lambda envelope, result: None, lambda: None)
    machine.image = image
    machine.apply(entries)


def _select_comparable_states(states: list[StoredMetadata]) -> tuple[list[StoredMetadata], list[str]]:
    """Return the nodes whose metadata can be compared, and a note for each node that ends before another's snapshot."""
    chosen = sorted(states, key=lambda state: state.last_index)
    notes = []
    while max(state.snapshot_index for state in chosen) > chosen[0].last_index:
        lagging = chosen.pop(0)
        notes.append(
            f"node {lagging.node}: metadata was not compared, because it ends at index {lagging.last_index}, before "
            "the "
            "snapshots of the other nodes"
        )
    return chosen, notes


def _compare_hashes(hashes: Mapping[int, int], index: int) -> Iterator[Finding]:
    counts = list(hashes.values())
    majority = max(counts, key=counts.count)
    others = [node for node, each in hashes.items() if each == majority]
    for node, each in hashes.items():
        if each != majority:
            says = (
                f"state hash {format_state_hash(each)} at metadata index {index} differs from node "
                f"{', '.join(map(str, others))}, which has {format_state_hash(majority)}"
            )
            yield Finding(FindingKind.STATE, says, node=node)


def compare_running_nodes(addresses: Sequence[Address], timeout_s: float, access: HttpAccess) -> MetadataComparison:
    """Compare the metadata that running nodes have in memory, as reported over HTTP.

    Raises:
        NodeRequestError: A node does not respond.
    """
    reported = (fetch_status(address, timeout_s, *access) for address in addresses)
    statuses = {status["node_id"]: status for status in reported}
    agreement = compare_states(statuses.values())
    if agreement.index is None:
        return MetadataComparison((), ("metadata of the running nodes was not compared: no common index",), None, None)
    index = agreement.index
    hashes = {
        node: int({**dict(status["recent_hashes"]), status["applied_index"]: status["state_hash"]}[index], 16)
        for node, status in statuses.items()
    }
    return MetadataComparison(tuple(_compare_hashes(hashes, index)), (), index, None)
