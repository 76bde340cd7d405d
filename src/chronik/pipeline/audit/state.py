"""The metadata as every node has it on its own disk: replayed from there, command by command, and compared.

A node's folder holds a snapshot and the log after it. What the log says is committed is applied to the snapshot, up to
the same index on all nodes: then the state hashes must be equal. That works beside running nodes as well, since a log
is only ever appended to.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Final

from chronik.config import Address
from chronik.console.agreement import compare_states
from chronik.console.ask import Way, ask_status
from chronik.console.views import hash_text
from chronik.errors import ChronikError, DataDamaged
from chronik.files import FileSystem, read_file
from chronik.metadata.image import Image
from chronik.metadata.image_machine import ImageMachine
from chronik.metadata.snapshot import decode_snapshot
from chronik.metadata.stores.journal import FOLDER as ALONE_FOLDER
from chronik.pipeline.audit.findings import Finding, Kind
from chronik.pipeline.audit.folders import CannotLook, NodeFolder
from chronik.pipeline.audit.readonly import ReadOnlyFiles
from chronik.quorum.disk_records import Manifest, decode_manifest, decode_record
from chronik.quorum.settings import FOLDER as RAFT_FOLDER
from chronik.quorum.storage import MANIFEST_NAME
from chronik.raft.entries import Entry, EntryKind, HardState
from chronik.wal.file_names import indexes_in
from chronik.wal.log import SUFFIX, segment_path
from chronik.wal.records import Record, scan, was_synced
from chronik.wal.snapshots import newest_snapshot, read_snapshot

LOOKS_MAX: Final = 5
"""A running node may take a snapshot, and drop the log before it, between two looks at its folder."""


@dataclass(frozen=True, slots=True)
class DiskState:
    """What a node could start from."""

    node: int
    image: Image
    """The image of the snapshot; empty when there is none."""
    first: int
    """The index of the snapshot; the image itself may have moved on."""
    entries: tuple[Entry, ...]
    """Those after it, in order."""
    commit: int
    """What is known to be committed; more may be, since it is only written down along with other things."""

    @property
    def last(self) -> int:
        return self.first + len(self.entries)


def read_state(folder: NodeFolder) -> DiskState:
    """Raises DataDamaged, naming what is; CannotLook when there is no metadata."""
    files = ReadOnlyFiles(folder.path)
    looks = 0
    while True:
        try:
            if os.path.isdir(f"{folder.path}/{RAFT_FOLDER}"):
                return _of_cluster(folder.node, files)
            if os.path.isdir(f"{folder.path}/{ALONE_FOLDER}"):
                return _alone(folder.node, files)
            raise CannotLook(f"{folder.path} has no metadata")
        except (FileNotFoundError, DataDamaged):
            looks += 1
            if looks >= LOOKS_MAX:
                raise


def _of_cluster(node: int, files: FileSystem) -> DiskState:
    data = read_file(files, f"{RAFT_FOLDER}/{MANIFEST_NAME}")
    manifest = Manifest() if data is None else decode_manifest(data)
    image = Image()
    if manifest.snapshot.index:
        image = decode_snapshot(read_snapshot(files, RAFT_FOLDER, manifest.snapshot.index))
    entries: dict[int, Entry] = {}
    commit = manifest.hard_state.commit
    for record in _records(files, RAFT_FOLDER, manifest.log_after):
        item = decode_record(record.payload)
        if isinstance(item, HardState):
            commit = item.commit
            continue
        entries[item.index] = item
        later = item.index + 1
        while entries.pop(later, None) is not None:  # an entry replaces all that came after it
            later += 1
    first = image.applied_index
    behind = tuple(entries[index] for index in takewhile(entries.__contains__, count(first + 1)))
    if commit > first + len(behind):
        raise DataDamaged(f"{RAFT_FOLDER}: entries up to {commit} are committed, they end at {first + len(behind)}")
    return DiskState(node, image, first, behind, max(first, commit))


def _alone(node: int, files: FileSystem) -> DiskState:
    index = newest_snapshot(files, ALONE_FOLDER) or 0
    image = decode_snapshot(read_snapshot(files, ALONE_FOLDER, index)) if index else Image()
    records = _records(files, ALONE_FOLDER, index)
    entries = tuple(Entry(each.index, 0, EntryKind.COMMAND, bytes(each.payload)) for each in records)
    return DiskState(node, image, image.applied_index, entries, image.applied_index + len(entries))


def _records(files: FileSystem, folder: str, after: int) -> Iterator[Record]:
    """Yields records up to the first that is damaged and was never synced. Raises DataDamaged if it was synced."""
    firsts = indexes_in(folder, SUFFIX, files)
    for number, first in enumerate(firsts):
        path = segment_path(folder, first)
        data = read_file(files, path) or b""
        records, position = scan(memoryview(data), first)
        yield from (record for record in records if record.index > after)
        if position < len(data):
            if number < len(firsts) - 1 or was_synced(data, position):
                raise DataDamaged(f"{path} is damaged at byte {position}")
            return
        if number + 1 < len(firsts) and firsts[number + 1] > first + len(records):
            raise DataDamaged(f"{folder}: records {first + len(records)} to {firsts[number + 1] - 1} are missing")


@dataclass(frozen=True, slots=True)
class States:
    """What the look at all nodes came to."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    index: int | None
    """The index at which they were compared."""
    latest: Image | None
    """The image that has come furthest."""


def compare_disks(folders: Mapping[int, NodeFolder]) -> States:
    """Compares what every node has on its own disk."""
    findings: list[Finding] = []
    states: list[DiskState] = []
    for node, folder in folders.items():
        try:
            states.append(read_state(folder))
        except (ChronikError, OSError) as error:
            findings.append(Finding(Kind.STATE, f"the metadata cannot be read: {error}", node=node, file=folder.path))
    if not states:
        return States(tuple(findings), (), None, None)
    comparable, notes = _comparable(states)
    index = _agreed(comparable)
    for state in comparable:
        _advance(state.image, state.entries[: index - state.first])
    hashes = {state.node: state.image.state_hash for state in comparable}
    findings += _compared(hashes, index)
    furthest = max(comparable, key=lambda state: state.commit)
    _advance(furthest.image, furthest.entries[index - furthest.first : furthest.commit - furthest.first])
    return States(tuple(findings), tuple(notes), index, furthest.image)


def _agreed(states: Sequence[DiskState]) -> int:
    """Returns how far all logs are the same log: what is in all of them, of the same term, cannot be taken back any
    more. That is at least as far as all know it to be committed."""
    index = max(state.first for state in states)
    end = min(state.last for state in states)
    while index < end and len({state.entries[index - state.first].term for state in states}) == 1:
        index += 1
    return max(index, min(state.commit for state in states))


def _advance(image: Image, entries: Sequence[Entry]) -> None:
    machine = ImageMachine(lambda delta: None, lambda envelope, result: None, lambda: None)
    machine.image = image
    machine.apply(entries)


def _comparable(states: list[DiskState]) -> tuple[list[DiskState], list[str]]:
    """Returns those that have an index in common; a node that was away for long may end before others' snapshots."""
    chosen = sorted(states, key=lambda state: state.last)
    notes = []
    while max(state.first for state in chosen) > chosen[0].last:
        behind = chosen.pop(0)
        notes.append(
            f"node {behind.node}: its metadata ends at index {behind.last}, before what the others' snapshots hold; "
            "it was not compared"
        )
    return chosen, notes


def _compared(hashes: Mapping[int, int], index: int) -> Iterator[Finding]:
    counts = list(hashes.values())
    usual = max(counts, key=counts.count)
    others = [node for node, each in hashes.items() if each == usual]
    for node, each in hashes.items():
        if each != usual:
            says = (
                f"at index {index} of the metadata its state hash is {hash_text(each)}; "
                f"that of node {', '.join(map(str, others))} is {hash_text(usual)}"
            )
            yield Finding(Kind.STATE, says, node=node)


def compare_running(addresses: Sequence[Address], timeout_s: float, way: Way) -> States:
    """Compares what running nodes hold in memory, as they tell over HTTP. Raises NodeSilent."""
    told = (ask_status(address, timeout_s, *way) for address in addresses)
    statuses = {status["node_id"]: status for status in told}
    agreement = compare_states(statuses.values())
    if agreement.index is None:
        return States((), ("the running nodes are too far apart for their states to be compared",), None, None)
    index = agreement.index
    hashes = {
        node: int({**dict(status["recent_hashes"]), status["applied_index"]: status["state_hash"]}[index], 16)
        for node, status in statuses.items()
    }
    return States(tuple(_compared(hashes, index)), (), index, None)
