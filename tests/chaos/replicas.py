"""A comparison of the replicas of a partition on disk, batch by batch.

It reads the segment files with knowledge of their names and of the batch format only, and ignores indexes and
checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from chronik.broker.quarantine import TOPICS_DIRECTORY
from chronik.ids import format_id
from chronik.log.files import names
from chronik.protocol.batch import parse_header, verify_crc
from chronik.protocol.errors import CorruptRecords
from tests.chaos.findings import Finding
from tests.chaos.history import Place

KIND = "replicas differ"


class StoredBatch(NamedTuple):
    base_offset: int
    next_offset: int
    content: bytes
    """The encoded batch, including its leader epoch."""


class StoredLog(NamedTuple):
    start: int
    batches: list[StoredBatch]

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.start


def partition_directory(data_dir: Path, topic_id: bytes, partition: int) -> Path:
    return data_dir / TOPICS_DIRECTORY / format_id(topic_id) / str(partition)


def read_log(folder: Path) -> StoredLog:
    """Read a log up to its last valid batch. A missing directory is an empty log.

    A running node may delete or compact a segment during the read; then the read is repeated.
    """
    while True:
        with suppress(FileNotFoundError):
            return _read_log(folder)


def _read_log(folder: Path) -> StoredLog:
    present = [path.name for path in folder.iterdir()] if folder.exists() else []
    segments = names.parse_file_name_offsets(present, names.LOG)
    batches: list[StoredBatch] = []
    for base_offset in segments:
        if batches and batches[-1].next_offset != base_offset:
            break
        batches += _valid_batches(
            (folder / names.format_offset_file_name(base_offset, names.LOG)).read_bytes(), base_offset
        )
    return StoredLog(segments[0] if segments else 0, batches)


def _valid_batches(data: bytes, due_offset: int) -> Iterator[StoredBatch]:
    """Yield the valid batches. A file may end with a torn batch or preallocated zeros."""
    position = 0
    while position < len(data):
        try:
            header = parse_header(data, position)
        except CorruptRecords:
            return
        if header.base_offset != due_offset or not verify_crc(data, position, header.size):
            return
        yield StoredBatch(header.base_offset, header.next_offset, data[position : position + header.size])
        position, due_offset = position + header.size, header.next_offset


def compare_replica_logs(place: Place, logs: Mapping[int, StoredLog], high_watermark: int) -> list[Finding]:
    """Check that every replica reaches the high watermark, and that all have the same bytes from the highest log start.

    Compacted logs cannot be compared, because each replica compacts on its own.
    """
    findings = [
        Finding(KIND, f"node {node} has {place} only up to {log.end} of {high_watermark}")
        for node, log in logs.items()
        if log.end < high_watermark
    ]
    start = max(log.start for log in logs.values())
    end = min(high_watermark, *(log.end for log in logs.values()))
    held = {node: _between(log, start, end) for node, log in logs.items()}
    reference_node, reference = next(iter(held.items()))
    for node, found in held.items():
        other = next((o for o in sorted(reference.keys() | found.keys()) if reference.get(o) != found.get(o)), None)
        if other is not None:
            what = f"{place}@{other}: nodes {reference_node} and {node} have different batches"
            findings.append(Finding(KIND, what))
    return findings


def _between(log: StoredLog, start: int, end: int) -> dict[int, bytes]:
    return {batch.base_offset: batch.content for batch in log.batches if start <= batch.base_offset < end}
