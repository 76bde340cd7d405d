"""A script of random operations on several partitions, and the checks after it was interrupted at any point."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from chronik.clock import ManualClock
from chronik.files import FileCache, FileSystem
from chronik.log.config import LogConfig
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.log.partition_log import PartitionLog
from chronik.protocol.batch import parse_header, validate_produced_batches
from chronik.protocol.records import Record, encode_batch

from .harness import NOW_MS, read_records

TOPIC = b"s" * 16
PLAIN = LogConfig(segment_bytes=900, index_interval_bytes=150, retention_bytes=2500, file_delete_delay_ms=2000)
COMPACTED = LogConfig(
    segment_bytes=700,
    index_interval_bytes=150,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.3,
    delete_retention_ms=20_000,
    file_delete_delay_ms=0,
)
CONFIGS = (PLAIN, COMPACTED, LogConfig(segment_bytes=1200, index_interval_bytes=300), COMPACTED)

Known = tuple[int, bytes | None, bytes | None]


@dataclass(slots=True)
class AcknowledgedState:
    """The acknowledged state of a partition: its records and log start offset."""

    written: dict[int, Known] = field(default_factory=dict)
    """Every record that was ever appended, acknowledged or not, by offset."""
    acknowledged_end: int = 0
    deleted_before: int = 0
    """The log start offset that was last acknowledged."""
    start_claimed: int = 0
    """The largest possible log start offset: a requested deletion may not have been acknowledged."""
    is_compacted: bool = False


class ScriptedNode:
    """Partitions on one disk, operated as the broker does."""

    def __init__(self, files: FileSystem, clock: ManualClock, promises: list[AcknowledgedState]) -> None:
        self.clock = clock
        self.promises = promises
        self.files = files
        self.cache = FileCache(files, open_files_max=8)
        self.synced = SyncedOffsets(files, "synced-offsets")
        self.logs = [self._open(number, config) for number, config in enumerate(CONFIGS)]

    def _open(self, number: int, config: LogConfig) -> PartitionLog:
        return PartitionLog.open(
            self.files, self.cache, f"topics/t/{number}", config, self.clock, self.synced.get(TOPIC, number),
            lower_recovery_point=lambda offset: self.synced.lower(TOPIC, number, offset),
        )  # fmt: skip

    def append(self, chance: random.Random, number: int) -> None:
        log, promise = self.logs[number], self.promises[number]
        records = [
            Record(n, self.clock.now_ms(), b"k%d" % chance.randrange(6), _value(chance))
            for n in range(chance.randint(1, 4))
        ]
        buffer = bytearray(encode_batch(records))
        base = log.log_end_offset
        for record in records:
            promise.written[base + record.offset] = (record.timestamp, record.key, record.value)
        log.append(
            buffer, validate_produced_batches(buffer), log.epochs.latest_epoch if chance.random() < 0.9 else base
        )

    def sync(self, number: int) -> None:
        log, promise = self.logs[number], self.promises[number]
        ticket = log.begin_sync()
        if ticket is None:
            return
        start = log.log_start_offset
        ticket.run()
        log.complete_sync(ticket)
        promise.acknowledged_end = max(promise.acknowledged_end, log.synced_offset)
        promise.deleted_before = max(promise.deleted_before, start)
        self.synced.record(TOPIC, number, log.synced_offset)

    def delete(self, chance: random.Random, number: int) -> None:
        log, promise = self.logs[number], self.promises[number]
        promise.start_claimed = max(
            promise.start_claimed, log.delete_records_before(chance.randint(log.log_start_offset, log.log_end_offset))
        )

    def retain(self, number: int) -> None:
        log, promise = self.logs[number], self.promises[number]
        log.apply_retention(self.clock.now_ms(), log.synced_offset)
        promise.start_claimed = max(promise.start_claimed, log.log_start_offset)

    def compact(self, number: int) -> None:
        job = self.logs[number].begin_compaction(self.clock.now_ms())
        if job is not None:
            job.run()
            self.logs[number].complete_compaction(job)

    def truncate(self, chance: random.Random, number: int) -> None:
        """Truncate as a follower does, never below the compacted offset, since only committed records are compacted."""
        log, promise = self.logs[number], self.promises[number]
        low = max(log.log_start_offset, log.synced_offset if promise.is_compacted else 0)
        if low < log.log_end_offset:
            offset = chance.randint(low, log.log_end_offset - 1)
            boundary = parse_header(log.read(offset, 1, log.log_end_offset)).base_offset
            promise.acknowledged_end = min(promise.acknowledged_end, boundary)
            assert log.truncate_to(offset) == boundary
            for gone in [offset for offset in promise.written if offset >= boundary]:
                del promise.written[gone]

    def close(self) -> None:
        for number, log in enumerate(self.logs):
            log.close()
            self.promises[number].acknowledged_end = log.synced_offset
            self.promises[number].deleted_before = log.log_start_offset
            self.synced.record(TOPIC, number, log.synced_offset)
        self.synced.close()
        self.cache.close()


def new_states() -> list[AcknowledgedState]:
    return [AcknowledgedState(is_compacted=config.is_compaction_enabled) for config in CONFIGS]


def run_script(files: FileSystem, promises: list[AcknowledgedState], seed: int, operations: int) -> ScriptedNode:
    """Run random operations. Raises whatever the file system raises."""
    chance = random.Random(seed)
    clock = ManualClock(NOW_MS)
    node = ScriptedNode(files, clock, promises)
    for _ in range(operations):
        clock.advance(1)
        number = chance.randrange(len(CONFIGS))
        what = chance.random()
        if what < 0.55:
            node.append(chance, number)
        elif what < 0.80:
            for each in range(len(CONFIGS)):
                node.sync(each)
        elif what < 0.84:
            node.delete(chance, number)
        elif what < 0.88:
            node.retain(number)
        elif what < 0.95:
            node.compact(number)
        elif what < 0.97:
            node.synced.sync()
        elif what < 0.975:
            node.truncate(chance, number)
        elif what < 0.985:
            node.close()
            node = ScriptedNode(files, clock, promises)
        else:
            node.logs[number].epochs.assign(node.logs[number].log_end_offset, node.logs[number].log_end_offset)
    return node


def check_partitions(files: FileSystem, promises: list[AcknowledgedState]) -> int:
    """Open every partition, compare it with the expected state, and return the number of records."""
    return check_node(ScriptedNode(files, ManualClock(NOW_MS), promises))


def accept_current_state(node: ScriptedNode) -> None:
    """After a crash, make the current contents the expected state: consumers have seen them."""
    for log, promise in zip(node.logs, node.promises, strict=True):
        for gone in [offset for offset in promise.written if offset >= log.log_end_offset]:
            del promise.written[gone]
        promise.acknowledged_end = log.synced_offset
        promise.deleted_before = promise.start_claimed = log.log_start_offset


def check_node(node: ScriptedNode) -> int:
    found = 0
    for number, (log, promise) in enumerate(zip(node.logs, node.promises, strict=True)):
        where = f"partition {number}"
        assert log.log_end_offset >= promise.acknowledged_end, where
        assert promise.deleted_before <= log.log_start_offset <= promise.start_claimed, where
        records = read_records(log)
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets)), where
        for record in records:
            known = (record.timestamp, record.key, record.value)
            assert known == promise.written[record.offset], f"{where}: offset {record.offset} has another record"
        _check_nothing_is_missing(log, promise, set(offsets), where)
        found += len(records)
    return found


def _check_nothing_is_missing(log: PartitionLog, promise: AcknowledgedState, present: set[int], where: str) -> None:
    expected = range(log.log_start_offset, log.log_end_offset)
    if not promise.is_compacted:
        assert present == set(expected), where
        return
    latest: dict[bytes | None, int] = {}
    for offset in expected:
        latest[promise.written[offset][1]] = offset
    for key, offset in latest.items():
        # The last record of each key exists, unless it is a tombstone.
        assert offset in present or promise.written[offset][2] is None, f"{where}: {key!r} at {offset} is lost"
    for offset in present:
        key, value = promise.written[offset][1:]
        deleted_since = promise.written[latest[key]][2] is None and latest[key] not in present
        assert value is None or not deleted_since, f"{where}: deleted key {key!r} reappeared at {offset}"


def _value(chance: random.Random) -> bytes | None:
    return None if chance.random() < 0.15 else bytes(chance.choices(range(256), k=chance.randint(1, 60)))
