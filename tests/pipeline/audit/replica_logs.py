"""Replica logs on disk for audit tests: written by a partition log, copied to all nodes, and then damaged."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from chronik.clock import ManualClock
from chronik.files import DiskFileSystem, FileCache
from chronik.log.config import LogConfig
from chronik.log.partition_log import PartitionLog
from chronik.pipeline.audit.findings import Finding
from chronik.pipeline.audit.log_comparison import LogComparison, compare_logs
from chronik.pipeline.audit.partition_plan import AuditedPartition, AuditedReplica
from chronik.pipeline.spark.tasks import run_locally
from chronik.protocol.batch import iter_batches
from chronik.protocol.records import Record, encode_batch

NOW_MS = 1_714_564_800_000
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
NODES = (1, 2, 3)


class LogBuilder:
    """A log that is being written; everything is on disk after `close`."""

    def __init__(self, directory: Path, config: LogConfig | None = None) -> None:
        files = DiskFileSystem(directory)
        self.config = config or LogConfig()
        self.clock = ManualClock(NOW_MS)
        self.log = PartitionLog.open(
            files, FileCache(files), ".", self.config, self.clock, lower_recovery_point=lambda offset: None
        )
        self._sequence = 0

    def append_batch(self, *records: tuple[bytes | None, bytes | None], epoch: int = 0, producer_id: int = -1) -> None:
        """Append a batch of records given as (key, value)."""
        data = bytearray(
            encode_batch(
                [Record(number, self.clock.now_ms(), key, value) for number, (key, value) in enumerate(records)],
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=self._sequence if producer_id >= 0 else -1,
            )
        )
        self._sequence += len(records)
        self.log.append(data, [header for _, header in iter_batches(data)], epoch)
        self.log.sync()

    def append_batches(self, count: int, size: int = 10, epoch: int = 0) -> None:
        for _ in range(count):
            first = self.log.log_end_offset
            self.append_batch(*((b"key %d" % each, b"value %d" % (first + each)) for each in range(size)), epoch=epoch)

    def compact(self) -> None:
        """Compact the log, including the active segment."""
        if self.log._segments.all[-1].size:
            self.log.roll()
        self.sync_all()
        compaction = self.log.begin_compaction(self.clock.now_ms())
        assert compaction is not None
        compaction.run()
        assert self.log.complete_compaction(compaction)
        self.sync_all()

    def sync_all(self) -> None:
        while self.log.needs_sync:
            self.log.sync()

    def close(self) -> int:
        end = self.log.log_end_offset
        self.log.close()
        return end


@dataclass
class ReplicaSet:
    """The replicas of one partition, with node 1 as leader."""

    directories: dict[int, Path]
    end: int
    start: int = 0
    is_compacted: bool = False

    def partition(self) -> AuditedPartition:
        return AuditedPartition(
            topic="orders",
            topic_id=TOPIC_ID,
            index=0,
            leader=1,
            start=self.start,
            end=self.end,
            is_compacted=self.is_compacted,
            replicas=tuple(
                AuditedReplica(node, str(directory), self.end, True) for node, directory in self.directories.items()
            ),
            unavailable_nodes=(),
        )

    def compare(self) -> LogComparison:
        return compare_logs(run_locally, [self.partition()])

    def findings(self) -> list[Finding]:
        return self.compare().findings

    def segment_files(self, node: int) -> list[Path]:
        return sorted(self.directories[node].glob("*.log"))

    def with_end(self, node: int, end: int) -> AuditedPartition:
        """Return the partition with one replica out of sync that matches the others up to `end`."""
        partition = self.partition()
        replicas = tuple(
            replace(each, end=end, is_in_sync=False) if each.node == node else each for each in partition.replicas
        )
        return replace(partition, replicas=replicas)


def copy_to_replicas(directory: Path, written: LogBuilder, *, is_compacted: bool = False) -> ReplicaSet:
    """Close the log, which is in `directory / "1"`, and copy it to the other nodes."""
    end = written.close()
    directories = {node: directory / str(node) for node in NODES}
    for node in NODES[1:]:
        shutil.copytree(directories[1], directories[node])
    return ReplicaSet(directories, end, is_compacted=is_compacted)


def list_batches(path: Path) -> list[tuple[int, int, int]]:
    """Return position, size and base offset of each batch."""
    data = path.read_bytes()
    return [(position, header.size, header.base_offset) for position, header in iter_batches(data)]


def flip_byte(path: Path, position: int, mask: int = 0x01) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)
