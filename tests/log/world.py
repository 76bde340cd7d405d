"""The harness of the log tests: a simulated disk, a clock, and batches."""

from __future__ import annotations

from collections.abc import Callable

from chronik.clock import ManualClock
from chronik.files import FileCache, FileSystem
from chronik.log.appends import AppendInfo
from chronik.log.config import LogConfig
from chronik.log.files.synced import SyncedOffsets
from chronik.log.partition import PartitionLog
from chronik.log.times import TimedBatch, TimedOffset, first_or_start
from chronik.protocol.batch import iter_batches, validate_produced, verify_crc
from chronik.protocol.budget import Budget
from chronik.protocol.records import Record, encode_batch, iter_records
from tests.files.twin import TwinFiles

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


def offset_for_timestamp(log: PartitionLog, timestamp: int) -> TimedOffset | None:
    """Look up a timestamp as ListOffsets does."""
    return _record_of(lambda start: log.batch_for_timestamp(timestamp, start))


def max_timestamp_offset(log: PartitionLog) -> TimedOffset | None:
    return _record_of(log.batch_with_max_timestamp)


def _record_of(batch_from: Callable[[int], TimedBatch | None]) -> TimedOffset | None:
    found, start = None, 0
    while found is None and (timed := batch_from(start)) is not None:
        found, start = first_or_start(timed, Budget.for_bytes(len(timed.batch))), timed.end_offset
    return found


class World:
    """One partition on one disk, with the state that a node keeps for it."""

    def __init__(
        self,
        files: FileSystem | None = None,
        config: LogConfig | None = None,
        clock: ManualClock | None = None,
        open_files_max: int = 64,
    ) -> None:
        self.files: FileSystem = files if files is not None else TwinFiles()
        self.config = config or LogConfig(segment_bytes=1000, index_interval_bytes=200, file_delete_delay_ms=0)
        self.clock = clock or ManualClock(NOW_MS)
        self.cache = FileCache(self.files, open_files_max)
        self.synced = SyncedOffsets(self.files, "synced-offsets")
        self.log = self.open()

    @property
    def twin(self) -> TwinFiles:
        assert isinstance(self.files, TwinFiles)
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
        return self.log.append(buffer, validate_produced(buffer), epoch)

    def sync(self) -> None:
        self.log.sync()
        self.synced.record(TOPIC_ID, 0, self.log.synced_offset)

    def settle(self) -> None:
        while self.log.needs_sync:
            self.sync()

    def compact(self) -> bool:
        job = self.log.begin_compaction(self.clock.now_ms())
        if job is None:
            return False
        job.run()
        assert self.log.complete_compaction(job)
        return True

    def reopened(self, files: FileSystem | None = None) -> World:
        """Open the log as a new process would, without closing it unless `close` was called."""
        return World(files or self.twin.kill(), self.config, self.clock)

    def close(self) -> None:
        self.log.close()
        self.synced.record(TOPIC_ID, 0, self.log.synced_offset)
        self.synced.close()
        self.cache.close()

    def path(self, suffix: str, number: int = 0) -> str:
        return [path for path in self.twin.paths() if path.startswith(FOLDER) and path.endswith(suffix)][number]


def records_of(log: PartitionLog, max_bytes: int = 1 << 20) -> list[Record]:
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


def values_of(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in records_of(log)]
