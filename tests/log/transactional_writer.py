"""Transactional producers of a log, and a consumer that filters aborted records as Kafka's consumers do."""

from __future__ import annotations

from collections.abc import Iterable

from chronik.log.config import LogConfig
from chronik.log.partition_log import AppendOrigin, PartitionLog
from chronik.log.partition_transactions import AbortedTransaction
from chronik.protocol.batch import iter_batches, parse_header
from chronik.protocol.control_records import (
    TransactionMarker,
    encode_transaction_marker_batch,
    parse_transaction_marker_batch,
)
from chronik.protocol.records import decode_batch

from .harness import LogHarness, batch

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=0)
END = 1 << 40


class TransactionalWriter:
    def __init__(self, config: LogConfig = SMALL) -> None:
        self.world = LogHarness(config=config)
        self.epochs: dict[int, int] = {}
        self._sequences: dict[int, int] = {}

    @property
    def log(self) -> PartitionLog:
        return self.world.log

    def write(self, producer_id: int, *values: bytes, keys: list[bytes] | None = None, plain: bool = False) -> int:
        sequence = self._sequences.get(producer_id, 0)
        data = batch(
            *values,
            keys=keys,
            timestamp=self.world.clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=self.epochs.get(producer_id, 0),
            sequence=sequence,
            transactional=not plain,
        )
        offset = self.world.append(data).base_offset
        self._sequences[producer_id] = sequence + len(values)
        return offset

    def end(self, producer_id: int, *, commit: bool, epoch: int | None = None, coordinator_epoch: int = 3) -> int:
        """End a transaction as coordinators do for transactions v1, or with a higher epoch as for v2."""
        known = self.epochs.get(producer_id, 0)
        offset = end_transaction(self.log, producer_id, known if epoch is None else epoch, commit, coordinator_epoch)
        if epoch is not None and epoch != known:
            self.begin_epoch(producer_id, epoch)
        return offset

    def begin_epoch(self, producer_id: int, epoch: int) -> None:
        self.epochs[producer_id] = epoch
        self._sequences[producer_id] = 0

    def last_stable_offset(self, high_watermark: int = END) -> int:
        return self.log.last_stable_offset(min(high_watermark, self.log.log_end_offset))

    def aborted(self, start: int = 0, end: int = END) -> list[tuple[int, int]]:
        return [each[:2] for each in self.log.producers.transactions.aborted.find_in_range(start, end)]

    def restart(self, *, closes: bool = False) -> None:
        if closes:
            self.world.close()
        self.world = self.world.reopen()

    def restart_without_snapshots(self) -> None:
        self.world.complete_syncs()
        files = self.world.simulated_files.kill()
        for path in [path for path in files.paths() if path.endswith(".snapshot")]:
            files.remove(path)
        self.world = self.world.reopen(files)


def end_transaction(log: PartitionLog, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int = 3) -> int:
    marker = TransactionMarker(commit, coordinator_epoch)
    data = bytearray(
        encode_transaction_marker_batch(marker, timestamp=0, producer_id=producer_id, producer_epoch=epoch)
    )
    return log.append(data, [parse_header(data)], 0, origin=AppendOrigin.COORDINATOR).base_offset


def committed_values(log: PartitionLog, high_watermark: int, max_bytes: int = 1 << 20) -> list[bytes | None]:
    """Return the values that a `read_committed` consumer sees, fetch by fetch."""
    offset, end = log.log_start_offset, log.last_stable_offset(high_watermark)
    values: list[bytes | None] = []
    while offset < end:
        records = log.read(offset, max_bytes, end)
        values += filter_aborted(records, log.find_aborted_transactions(records, offset), offset)
        offset = [header.next_offset for _, header in iter_batches(records)][-1]
    return values


def filter_aborted(records: memoryview, aborted: Iterable[AbortedTransaction], offset: int) -> list[bytes | None]:
    """Skip each producer's records from the first offset of an aborted transaction to its marker, as clients do."""
    coming = sorted(aborted, key=lambda each: each.first_offset)
    left_out: set[int] = set()
    values: list[bytes | None] = []
    for position, header in iter_batches(records):
        while coming and coming[0].first_offset <= header.last_offset:
            left_out.add(coming.pop(0).producer_id)
        if header.is_control:
            marker = parse_transaction_marker_batch(records, position)
            if marker is not None and not marker.is_commit:
                left_out.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in left_out):
            values += [record.value for record in decode_batch(records, position) if record.offset >= offset]
    return values


def replicate_log(log: PartitionLog, world: LogHarness, max_bytes: int = 500) -> PartitionLog:
    """Replicate a log into an empty one as a follower does."""
    offset = log.log_start_offset
    world.log.truncate_fully_and_start_at(offset)
    while world.log.log_end_offset < log.log_end_offset:
        records = log.read(world.log.log_end_offset, max_bytes, log.log_end_offset)
        first = parse_header(records).base_offset
        if first < world.log.log_end_offset:
            world.log.truncate_fully_and_start_at(first)
        world.log.append_as_follower(records)
    world.log.delete_records_before(log.log_start_offset)
    return world.log
