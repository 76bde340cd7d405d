"""The harness of the log tests: a simulated disk, a clock, and batches."""

from __future__ import annotations

from collections.abc import Callable

from chronik.clock import ManualClock
from chronik.files import FileCache, FileSystem
from chronik.log.config import LogConfig
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.log.partition_log import AppendInfo, PartitionLog
from chronik.log.timestamp_lookup import TimestampedBatch, TimestampedOffset, find_record_or_batch_start
from chronik.protocol.batch import iter_batches, validate_produced_batches, verify_crc
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.records import Record, encode_batch, iter_records
from tests.files.simulated_files import SimulatedFileSystem

FOLDER = "topics/aaaaaaaaaaaaaaaaaaaaaa/0"
TOPIC_ID = b"i" * 16
NOW_MS = 1_700_000_000_000


def batch(
    *values: bytes | None,
    key: bytes | None = b"key",
    keys: list[bytes] | None = None,
    timestamp: int = NOW_MS,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    codec: int = 0,
    transactional: bool = False,
) -> bytearray:
    names = keys if keys is not None else [key] * len(values)
    records = [
        Record(number, timestamp + number, name, value)
        for number, (name, value) in enumerate(zip(names, values, strict=True))
    ]
    return bytearray(
        encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch if producer_epoch >= 0 or producer_id < 0 else 0,
            base_sequence=sequence,
            codec=codec,
            transactional=transactional,
        )
    )


def offset_for_timestamp(log: PartitionLog, timestamp: int) -> TimestampedOffset | None:
    """Look up a timestamp as ListOffsets does."""
    return _record_of(lambda start: log.find_batch_by_timestamp(timestamp, start))


def max_timestamp_offset(log: PartitionLog) -> TimestampedOffset | None:
    return _record_of(log.find_batch_with_max_timestamp)


def _record_of(batch_from: Callable[[int], TimestampedBatch | None]) -> TimestampedOffset | None:
    found, start = None, 0
    while found is None and (timed := batch_from(start)) is not None:
        found, start = (
            find_record_or_batch_start(timed, DecompressionBudget.for_request(len(timed.batch))),
            timed.end_offset,
        )
    return found


class LogHarness:
    """One partition on one disk, with the state that a node keeps for it."""

    def __init__(
        self,
        files: FileSystem | None = None,
        config: LogConfig | None = None,
        clock: ManualClock | None = None,
        open_files_max: int = 64,
    ) -> None:
        self.files: FileSystem = files if files is not None else SimulatedFileSystem()
        self.config = config or LogConfig(segment_bytes=1000, index_interval_bytes=200, file_delete_delay_ms=0)
        self.clock = clock or ManualClock(NOW_MS)
        self.cache = FileCache(self.files, open_files_max)
        self.synced = SyncedOffsets(self.files, "synced-offsets")
        self.log = self.open()

    @property
    def simulated_files(self) -> SimulatedFileSystem:
        assert isinstance(self.files, SimulatedFileSystem)
        return self.files

    def open(self, directory: str = FOLDER) -> PartitionLog:
        return PartitionLog.open(
            self.files,
            self.cache,
            directory,
            self.config,
            self.clock,
            self.synced.get(TOPIC_ID, 0),
            lower_recovery_point=lambda offset: self.synced.lower(TOPIC_ID, 0, offset),
        )

    def append(self, buffer: bytearray, epoch: int = 0) -> AppendInfo:
        return self.log.append(buffer, validate_produced_batches(buffer), epoch)

    def sync(self) -> None:
        self.log.sync()
        self.synced.record(TOPIC_ID, 0, self.log.synced_offset)

    def complete_syncs(self) -> None:
        while self.log.needs_sync:
            self.sync()

    def compact(self) -> bool:
        job = self.log.begin_compaction(self.clock.now_ms())
        if job is None:
            return False
        job.run()
        assert self.log.complete_compaction(job)
        return True

    def reopen(self, files: FileSystem | None = None) -> LogHarness:
        """Open the log as a new process would, without closing it unless `close` was called."""
        return LogHarness(files or self.simulated_files.kill(), self.config, self.clock)

    def close(self) -> None:
        self.log.close()
        self.synced.record(TOPIC_ID, 0, self.log.synced_offset)
        self.synced.close()
        self.cache.close()

    def path(self, suffix: str, number: int = 0) -> str:
        return [path for path in self.simulated_files.paths() if path.startswith(FOLDER) and path.endswith(suffix)][
            number
        ]


def read_records(log: PartitionLog, max_bytes: int = 1 << 20) -> list[Record]:
    """Return all records that a consumer reads, validating every batch."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, max_bytes, log.log_end_offset)
        assert len(data) > 0, f"no progress at offset {offset}"
        for position, header in iter_batches(data):
            assert verify_crc(data, position, header.size)
            assert header.base_offset <= offset <= header.last_offset
            offset = header.next_offset
        records += [record for record in iter_records(data) if record.offset >= log.log_start_offset]
    return records


def read_values(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in read_records(log)]
