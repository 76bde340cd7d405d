"""Turns what a producer sent into batches as the topic stores them.

Almost always nothing is changed: the batch is checked by its header and checksum and goes to disk as it came. It is
opened only for messages of the old formats, `compression.type`, and compacted topics (every record needs a key).
Log append time is written into the header.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from chronik.configs.checks import LONG_MAX
from chronik.protocol.batch import (
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    TimestampType,
    parse_header,
    set_log_append_time,
    validate_produced,
)
from chronik.protocol.budget import Budget
from chronik.protocol.compression import Codec
from chronik.protocol.control_records import TransactionMarker, encode_marker_batch
from chronik.protocol.errors import ErrorCode, InvalidRecord, KafkaError
from chronik.protocol.message_set import convert_up
from chronik.protocol.rewrite import oldest_timestamp, recompress, validate_records
from chronik.protocol.skim import Opened, open_within
from chronik.wording import counted

FIRST_VERSION_WITH_ZSTD = 7

WritableBytes = bytearray | memoryview
BudgetOf = Callable[[], Budget]
"""Returns the budget of one request, the same each time: hardly any request needs one."""


class IncomingRules(msgspec.Struct, frozen=True):
    """What a topic's configs demand of records."""

    max_message_bytes: int
    compacted: bool = False
    deletable: bool = True
    """Whether DeleteRecords may remove records: not where compaction alone decides what is removed."""
    codec: Codec | None = None
    """Records are stored with this codec; None keeps the producer's."""
    codec_level: int | None = None
    log_append_time: bool = False
    timestamp_before_max_ms: int = LONG_MAX
    timestamp_after_max_ms: int = LONG_MAX
    min_insync_replicas: int = 1
    """With fewer in sync, acks=all is refused."""

    @property
    def are_of_records(self) -> bool:
        """Whether they concern single records, not only batches, so that batches have to be opened."""
        return self.compacted or (not self.log_append_time and self.timestamp_before_max_ms < LONG_MAX)


class Incoming(msgspec.Struct, frozen=True):
    buffer: WritableBytes
    headers: list[BatchHeader]
    log_append_time_ms: int = -1


def marker_batch(producer_id: int, producer_epoch: int, marker: TransactionMarker, now_ms: int) -> Incoming:
    """Returns what ends a producer's transaction. No client sends it, so no topic's rules hold for it."""
    batch = bytearray(
        encode_marker_batch(marker, timestamp=now_ms, producer_id=producer_id, producer_epoch=producer_epoch)
    )
    return Incoming(batch, [parse_header(batch)])


def accept_produced(
    records: memoryview | None, rules: IncomingRules, api_version: int, now_ms: int, budget: BudgetOf | None = None
) -> Incoming:
    """Raises KafkaError with what the client is told; then none of the records may be stored. One such error,
    RecordsTooLarge, says that more had to be opened than `budget` allows, which is called only if anything must be."""
    if records is None or len(records) == 0:
        raise InvalidRecord("a partition without records")
    if budget is None:
        budget = partial(Budget.for_bytes, len(records))
    buffer: WritableBytes = records
    converted = len(records) > MAGIC_POSITION and records[MAGIC_POSITION] < MAGIC
    if converted:
        if api_version >= 3:
            raise InvalidRecord("messages of an old format in a request of version 3 or newer")
        buffer = bytearray(b"".join(convert_up(records, budget(), size_max=rules.max_message_bytes)))
    headers = validate_produced(buffer)
    if len(headers) != 1 and not converted:
        raise InvalidRecord(f"a partition with {counted(len(headers), 'batch', 'batches')} where one is expected")
    if api_version < FIRST_VERSION_WITH_ZSTD and any(header.codec == Codec.ZSTD for header in headers):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or newer")
    if rules.codec is not None and any(header.codec != rules.codec for header in headers):
        buffer, headers = _recompressed(buffer, headers, rules, now_ms, budget)
    else:
        _check(buffer, headers, rules, now_ms, budget)
    if rules.log_append_time:
        buffer = bytearray(buffer)  # what was sent must stay as it was: it may have to be looked at again
        return Incoming(buffer, _stamped(buffer, headers, now_ms), now_ms)
    return Incoming(buffer, headers)


def _check(
    buffer: WritableBytes, headers: list[BatchHeader], rules: IncomingRules, now_ms: int, budget: BudgetOf
) -> None:
    position = 0
    for header in headers:
        _check_batch(header, rules)
        opened = open_within(buffer, position, budget()) if rules.are_of_records else None
        _check_records(header, opened, rules, now_ms)
        del opened  # never two of them at a time
        position += header.size


def _recompressed(
    buffer: WritableBytes, headers: list[BatchHeader], rules: IncomingRules, now_ms: int, budget: BudgetOf
) -> tuple[bytearray, list[BatchHeader]]:
    """Checks the records, too: what has to be opened for both is opened, and counted, once."""
    assert rules.codec is not None
    result, position = bytearray(), 0
    for header in headers:
        opened = open_within(buffer, position, budget())
        stored = recompress(*opened, rules.codec, level=rules.codec_level, size_max=rules.max_message_bytes)
        _check_batch(parse_header(stored), rules)
        _check_records(header, opened, rules, now_ms)
        del opened
        result += stored
        position += header.size
    return result, validate_produced(result)


def _check_batch(header: BatchHeader, rules: IncomingRules) -> None:
    if header.size > rules.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"A batch of {header.size} bytes, where {rules.max_message_bytes} are accepted (max.message.bytes)",
        )


def _check_records(header: BatchHeader, opened: Opened | None, rules: IncomingRules, now_ms: int) -> None:
    newest, oldest = header.max_timestamp, header.base_timestamp
    if opened is not None and rules.compacted:
        oldest = validate_records(*opened, keys_required=True)
    elif opened is not None and rules.are_of_records:
        oldest = oldest_timestamp(*opened)
    if rules.log_append_time:
        return
    if newest > now_ms + rules.timestamp_after_max_ms or (
        oldest >= 0 and oldest < now_ms - rules.timestamp_before_max_ms
    ):
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, "A record's time lies too far in the past or in the future for this topic"
        )


def _stamped(buffer: WritableBytes, headers: list[BatchHeader], now_ms: int) -> list[BatchHeader]:
    stamped, position = [], 0
    for header in headers:
        set_log_append_time(buffer, position, now_ms)
        stamped.append(parse_header(buffer, position))
        position += header.size
    assert all(header.timestamp_type is TimestampType.LOG_APPEND_TIME for header in stamped)
    return stamped
