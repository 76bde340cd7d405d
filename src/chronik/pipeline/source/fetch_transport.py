"""Fetch transport: read an offset range with Fetch requests to the partition's leader (Chronik or Apache Kafka).

The next chunk is fetched while the current one is decoded. A broker returns no records above the high watermark (or the
last stable offset), and lists the aborted transactions along with the records.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, cast

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.consumer import NO_SESSION_EPOCH
from chronik.limits import MIB
from chronik.pipeline.records.batches import AbortedProducerRange, iter_batches
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.source.offset_resolver import OffsetResolver
from chronik.pipeline.source.options import IsolationLevel, ReadSettings
from chronik.pipeline.source.record_chunk import CHUNK_BYTES, RecordChunk, report_data_loss
from chronik.protocol.batch import Bytes
from chronik.protocol.errors import CorruptRecords, ErrorCode, KafkaError
from chronik.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

FETCH_WAIT_S: Final = 0.5
"""Maximum time in seconds that a broker waits for records. Only a new leader may not have the planned ones yet."""

EMPTY_RESPONSES_MAX: Final = 3
"""Number of empty responses after which the rest of the range is assumed to be removed by compaction.

Only responses with a high watermark beyond the range count.
"""

CHUNK_BYTES_MAX: Final = 128 * MIB
"""Maximum fetch size in bytes. The fetch size is doubled when a broker before Kafka 0.10.1 truncates a large batch."""


def fetch_chunks(cluster: ClusterClient, target: OffsetRange, settings: ReadSettings) -> Generator[RecordChunk]:
    """Yield chunks of the batches in an offset range, in order, including control batches and aborted transactions.

    Raises:
        DataLossError: Records were deleted, and `settings` do not allow skipping them.
        ClientError, KafkaError: The brokers did not respond within the poll timeout.
    """
    reader = _RangeReader(cluster, target, settings)
    chunk = reader.next_chunk(target.start)
    if chunk is not None and chunk.next_offset >= target.end:  # a small range needs no thread
        yield chunk
        return
    if chunk is None:
        return
    with ThreadPoolExecutor(1, "chronik-fetch") as thread:
        pending = thread.submit(reader.next_chunk, chunk.next_offset)
        yield chunk
        while (chunk := pending.result()) is not None:
            pending = thread.submit(reader.next_chunk, chunk.next_offset)
            yield chunk


class _RangeReader:
    """A reader of one partition's offset range, which sends one Fetch request after another."""

    def __init__(self, cluster: ClusterClient, target: OffsetRange, settings: ReadSettings) -> None:
        self._cluster = cluster
        self._target = target
        self._settings = settings
        self._chunk_bytes = CHUNK_BYTES

    def next_chunk(self, position: int) -> RecordChunk | None:
        """Return the next batches at or after `position`, or None at the end of the range."""
        deadline = time.monotonic() + self._settings.poll_timeout_s
        empty_responses = 0
        while position < self._target.end and empty_responses < EMPTY_RESPONSES_MAX:
            if time.monotonic() > deadline:
                raise self._build_timeout_error(position)
            try:
                throttled, data = self._cluster.retry(lambda at=position: self._fetch(at))  # type: ignore[misc]
            except KafkaError as error:
                position = self._skip_deleted_records(position, error)
                continue
            chunk = self._parse_fetch_response(position, data)
            if chunk is not None:
                return chunk
            complete = self._get_readable_end_offset(data) >= self._target.end and not throttled and not data.records
            empty_responses = empty_responses + 1 if complete else 0
        return None

    def _fetch(self, position: int) -> tuple[bool, PartitionData]:
        target = self._target
        fetch_partition = FetchPartition(
            partition=target.partition, fetch_offset=position, partition_max_bytes=self._chunk_bytes
        )
        request = FetchRequest(
            max_wait_ms=int(FETCH_WAIT_S * 1000),
            min_bytes=1,
            max_bytes=self._chunk_bytes,
            isolation_level=self._settings.isolation,
            session_epoch=NO_SESSION_EPOCH,
            topics=[FetchTopic(topic=target.topic, partitions=[fetch_partition])],
        )
        response = self._cluster.leader(target.topic_partition).request(request, FetchResponse, wait_s=FETCH_WAIT_S)
        raise_for_code(response.error_code, "fetch")
        (topic,) = response.responses
        (data,) = topic.partitions
        raise_for_code(data.error_code, str(target.topic_partition))
        return response.throttle_time_ms > 0, data

    def _parse_fetch_response(self, position: int, data: PartitionData) -> RecordChunk | None:
        raw = cast(Bytes, data.records or b"")  # decoded responses never hold a list of buffers
        batches = [batch for batch in iter_batches(raw) if batch.last_offset >= position]
        if batches:
            aborted = tuple(
                AbortedProducerRange(each.first_offset, each.producer_id) for each in data.aborted_transactions or ()
            )
            return RecordChunk(raw, batches, position, aborted)
        if len(raw) >= self._chunk_bytes:
            if self._chunk_bytes >= CHUNK_BYTES_MAX:
                raise CorruptRecords(f"{self._target.topic_partition}: a batch is larger than {CHUNK_BYTES_MAX} bytes")
            self._chunk_bytes *= 2
        return None

    def _get_readable_end_offset(self, data: PartitionData) -> int:
        if self._settings.isolation is IsolationLevel.READ_COMMITTED:
            return data.last_stable_offset
        return data.high_watermark

    def _build_timeout_error(self, position: int) -> KafkaError:
        """Return the timeout error for a fetch at `position`. As in Spark, `failOnDataLoss` does not affect it."""
        target, waited = self._target, f"{self._settings.poll_timeout_s:g} s"
        message = f"{target.topic_partition}: no records of offsets {position} to {target.end - 1} within {waited}"
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{message}: the partition's leader does not have them yet")

    def _skip_deleted_records(self, position: int, error: KafkaError) -> int:
        """Return the offset after the records that retention has deleted, or re-raise an error with another cause."""
        target = self._target
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._report_data_loss(position, target.end, "the partition no longer exists")
            return target.end
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise error
        positions = OffsetResolver(self._cluster, IsolationLevel.READ_UNCOMMITTED)
        log_start = positions.fetch_earliest_offsets([target.topic_partition])[target.topic_partition]
        if position < log_start:
            resume_offset = min(log_start, target.end)
            self._report_data_loss(position, resume_offset, f"the partition now starts at {log_start}")
            return resume_offset
        log_end = positions.fetch_latest_offsets([target.topic_partition])[target.topic_partition]
        if position > log_end:
            self._report_data_loss(position, target.end, f"the partition now ends at {log_end}")
            return target.end
        return position  # the log has changed since the error: fetch again

    def _report_data_loss(self, first: int, end: int, reason: str) -> None:
        report_data_loss(self._target, first, end, reason, fail=self._settings.fail_on_data_loss)
