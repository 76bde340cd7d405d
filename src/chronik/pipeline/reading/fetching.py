"""A range of a partition over Fetch, from whatever broker leads it: Chronik's, or any that speaks Kafka's protocol.

The next portion is on its way while the one before is decoded. A broker hands out nothing above the high watermark (or
the last stable offset), and lists the aborted transactions beside the records.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, cast

from chronik.client.cluster import Cluster, raise_for
from chronik.client.consumer import NO_SESSION_EPOCH
from chronik.limits import MIB
from chronik.pipeline.reading.options import IsolationLevel, ReadSettings
from chronik.pipeline.reading.portions import PORTION_BYTES, Portion, report_loss
from chronik.pipeline.reading.positions import Positions
from chronik.pipeline.reading.ranges import OffsetRange
from chronik.pipeline.records.batches import Aborted, stored_batches
from chronik.protocol.batch import Bytes
from chronik.protocol.errors import CorruptRecords, ErrorCode, KafkaError
from chronik.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

WAIT_S: Final = 0.5
"""How long a broker may wait for records: those of a planned range are there, unless it has just become the leader."""

EMPTY_ANSWERS_MAX: Final = 3
"""So many times a broker must say that it has everything up to the end of a range, and nothing of it, before the rest
counts as a gap that compaction has left."""

PORTION_BYTES_MAX: Final = 128 * MIB
"""Brokers from before Kafka 0.10.1 cut a batch that is longer than what was asked for: up to here, ask for more."""


def fetched_portions(cluster: Cluster, target: OffsetRange, settings: ReadSettings) -> Generator[Portion]:
    """Yields the batches that hold the range, in order; aborted transactions and control batches are in them.

    Raises DataLoss when records are gone (or reads on without them, as `settings` says), ClientError or KafkaError when
    the brokers do not answer for longer than the poll timeout.
    """
    reader = _RangeReader(cluster, target, settings)
    with ThreadPoolExecutor(1, "chronik-fetch") as thread:
        pending = thread.submit(reader.next_portion, target.start)
        while (portion := pending.result()) is not None:
            pending = thread.submit(reader.next_portion, portion.next_offset)
            yield portion


class _RangeReader:
    def __init__(self, cluster: Cluster, target: OffsetRange, settings: ReadSettings) -> None:
        self._cluster = cluster
        self._target = target
        self._settings = settings
        self._portion_bytes = PORTION_BYTES

    def next_portion(self, position: int) -> Portion | None:
        """Returns the first batches at or after `position`; None when there is nothing more of the range."""
        deadline = time.monotonic() + self._settings.poll_timeout_s
        empty_answers = 0
        while position < self._target.end and empty_answers < EMPTY_ANSWERS_MAX:
            if time.monotonic() > deadline:
                raise self._overdue(position)
            try:
                throttled, data = self._cluster.retrying(lambda at=position: self._fetch(at))  # type: ignore[misc]
            except KafkaError as error:
                position = self._after_loss(position, error)
                continue
            portion = self._opened(position, data)
            if portion is not None:
                return portion
            complete = self._readable_end(data) >= self._target.end and not throttled and not data.records
            empty_answers = empty_answers + 1 if complete else 0
        return None

    def _fetch(self, position: int) -> tuple[bool, PartitionData]:
        target = self._target
        wanted = FetchPartition(
            partition=target.partition, fetch_offset=position, partition_max_bytes=self._portion_bytes
        )
        request = FetchRequest(
            max_wait_ms=int(WAIT_S * 1000),
            min_bytes=1,
            max_bytes=self._portion_bytes,
            isolation_level=self._settings.isolation,
            session_epoch=NO_SESSION_EPOCH,
            topics=[FetchTopic(topic=target.topic, partitions=[wanted])],
        )
        response = self._cluster.leader(target.source).request(request, FetchResponse, wait_s=WAIT_S)
        raise_for(response.error_code, "fetch")
        (topic,) = response.responses
        (data,) = topic.partitions
        raise_for(data.error_code, str(target.source))
        return response.throttle_time_ms > 0, data

    def _opened(self, position: int, data: PartitionData) -> Portion | None:
        raw = cast(Bytes, data.records or b"")  # a decoder yields no lists
        batches = [batch for batch in stored_batches(raw) if batch.last_offset >= position]
        if batches:
            aborted = tuple(Aborted(each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
            return Portion(raw, batches, position, aborted)
        if len(raw) >= self._portion_bytes:
            if self._portion_bytes >= PORTION_BYTES_MAX:
                raise CorruptRecords(f"{self._target.source}: a batch of more than {PORTION_BYTES_MAX} bytes")
            self._portion_bytes *= 2
        return None

    def _readable_end(self, data: PartitionData) -> int:
        if self._settings.isolation is IsolationLevel.READ_COMMITTED:
            return data.last_stable_offset
        return data.high_watermark

    def _overdue(self, position: int) -> KafkaError:
        """An error whatever `settings` say of lost data: this may yet come, as with Spark's own source."""
        target, waited = self._target, f"{self._settings.poll_timeout_s:g} s"
        told = f"{target.source}: nothing of offsets {position} to {target.end - 1} came in {waited}"
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{told}: the partition's leader does not have them yet")

    def _after_loss(self, position: int, error: KafkaError) -> int:
        """Returns where to read on. Raises the error if it is about something else than records that are gone."""
        target = self._target
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._lose(position, target.end, "the partition no longer exists")
            return target.end
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise error
        positions = Positions(self._cluster, IsolationLevel.READ_UNCOMMITTED)
        log_start = positions.earliest([target.source])[target.source]
        if position < log_start:
            position_after = min(log_start, target.end)
            self._lose(position, position_after, f"the partition now starts at {log_start}")
            return position_after
        log_end = positions.latest([target.source])[target.source]
        if position > log_end:
            self._lose(position, target.end, f"the partition now ends at {log_end}")
            return target.end
        return position  # it was a moment ago; ask again

    def _lose(self, first: int, end: int, why: str) -> None:
        report_loss(self._target, first, end, why, fail=self._settings.fail_on_data_loss)
