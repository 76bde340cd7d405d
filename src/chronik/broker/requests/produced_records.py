"""Validation of produced records, and their conversion to the topic's storage format.

Almost all batches are validated by header and checksum and stored unchanged. A batch is decompressed only for old
message formats, for `compression.type`, and for compacted topics, where every record needs a key. The log append time
is written to the header.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial

import msgspec

from chronik.configs.validators import LONG_MAX
from chronik.protocol.batch import (
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    TimestampType,
    parse_header,
    set_log_append_time,
    validate_produced_batches,
)
from chronik.protocol.batch_rewrite import find_min_timestamp, recompress_batch, validate_records
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.compression import Codec
from chronik.protocol.control_records import TransactionMarker, encode_transaction_marker_batch
from chronik.protocol.errors import ErrorCode, InvalidRecord, KafkaError
from chronik.protocol.message_set import convert_to_batches
from chronik.protocol.record_scan import DecompressedBatch, decompress_within_budget
from chronik.protocol.schema_ids import SchemaUsage, collect_schema_usage
from chronik.wording import pluralize

ZSTD_MIN_VERSION = 7

WritableBytes = bytearray | memoryview
BudgetFactory = Callable[[], DecompressionBudget]
"""A function that returns a produce request's budget for decompressed bytes.

The budget is created on first use, because most requests do not need it.
"""


class SubjectNameStrategy(Enum):
    """A rule for the name of the subject under which the schemas of a topic's keys or values are registered."""

    TOPIC = "TopicNameStrategy"
    """`TOPIC-key` or `TOPIC-value`."""
    RECORD = "RecordNameStrategy"
    """The full name of the record type."""
    TOPIC_RECORD = "TopicRecordNameStrategy"
    """`TOPIC-RECORD`."""


class ProduceRules(msgspec.Struct, frozen=True):
    """The rules that a topic's configs impose on produced records."""

    max_message_bytes: int
    is_compacted: bool = False
    can_delete_records: bool = True
    """Whether DeleteRecords is allowed; False if the cleanup policy is only `compact`."""
    codec: Codec | None = None
    """The codec for stored records; None keeps the producer's codec."""
    codec_level: int | None = None
    uses_log_append_time: bool = False
    timestamp_before_max_ms: int = LONG_MAX
    timestamp_after_max_ms: int = LONG_MAX
    min_insync_replicas: int = 1
    """Minimum size of the ISR for acks=all."""
    key_schemas: SubjectNameStrategy | None = None
    """How to find the subject of the schemas of record keys, or None if keys need no schema."""
    value_schemas: SubjectNameStrategy | None = None

    @property
    def needs_record_validation(self) -> bool:
        """Whether individual records must be validated, which requires decompression."""
        return (
            self.is_compacted
            or self.key_schemas is not None
            or self.value_schemas is not None
            or (not self.uses_log_append_time and self.timestamp_before_max_ms < LONG_MAX)
        )

    @property
    def limits_oldest_timestamp(self) -> bool:
        """Whether the timestamp of every record must be checked: the header of a batch has only the newest one."""
        return not self.uses_log_append_time and self.timestamp_before_max_ms < LONG_MAX

    @property
    def needs_schemas(self) -> bool:
        """Whether record keys or values must name a registered schema."""
        return self.key_schemas is not None or self.value_schemas is not None


class ValidatedRecords(msgspec.Struct, frozen=True):
    """Record batches of a produce request that passed validation and can be appended to a log."""

    buffer: WritableBytes
    headers: list[BatchHeader]
    log_append_time_ms: int = -1
    schemas: tuple[SchemaUsage, ...] = ()
    """The schemas that the records of each batch name, if the topic's rules require schemas."""


def build_marker_batch(
    producer_id: int, producer_epoch: int, marker: TransactionMarker, now_ms: int
) -> ValidatedRecords:
    """Build the control batch that commits or aborts a producer's transaction.

    The topic's rules do not apply to it.
    """
    batch = bytearray(
        encode_transaction_marker_batch(
            marker, timestamp=now_ms, producer_id=producer_id, producer_epoch=producer_epoch
        )
    )
    return ValidatedRecords(batch, [parse_header(batch)])


def validate_produced_records(
    records: memoryview | None, rules: ProduceRules, api_version: int, now_ms: int, budget: BudgetFactory | None = None
) -> ValidatedRecords:
    """Validate the records of a produce request for one partition, and convert them to the topic's storage format.

    `budget` is called only if batches have to be decompressed.

    Raises:
        KafkaError: The error for the client; no record may be stored. RecordsTooLarge means that the decompressed
            records exceed the budget.
    """
    if records is None or len(records) == 0:
        raise InvalidRecord("a partition in the request has no records")
    if budget is None:
        budget = partial(DecompressionBudget.for_request, len(records))
    buffer: WritableBytes = records
    converted = len(records) > MAGIC_POSITION and records[MAGIC_POSITION] < MAGIC
    if converted:
        if api_version >= 3:
            raise InvalidRecord("message formats 0 and 1 require Produce version 2 or older")
        buffer = bytearray(b"".join(convert_to_batches(records, budget(), size_max=rules.max_message_bytes)))
    headers = validate_produced_batches(buffer)
    if len(headers) != 1 and not converted:
        raise InvalidRecord(f"a partition must have one batch, not {pluralize(len(headers), 'batch', 'batches')}")
    if api_version < ZSTD_MIN_VERSION and any(header.codec == Codec.ZSTD for header in headers):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd requires Produce version 7 or newer")
    if rules.codec is not None and any(header.codec != rules.codec for header in headers):
        buffer, headers, schemas = _recompress_batches(buffer, headers, rules, now_ms, budget)
    else:
        schemas = _check_batches(buffer, headers, rules, now_ms, budget)
    if rules.uses_log_append_time:
        buffer = bytearray(buffer)  # the request's buffer must not change, because it may be validated again
        return ValidatedRecords(buffer, _set_append_time(buffer, headers, now_ms), now_ms, schemas)
    return ValidatedRecords(buffer, headers, schemas=schemas)


def _check_batches(
    buffer: WritableBytes, headers: list[BatchHeader], rules: ProduceRules, now_ms: int, budget: BudgetFactory
) -> tuple[SchemaUsage, ...]:
    if not rules.needs_record_validation:
        for header in headers:
            _check_batch(header, rules)
            _check_records(header, None, rules, now_ms)
        return ()
    schemas, position = [], 0
    for header in headers:
        _check_batch(header, rules)
        decompressed = decompress_within_budget(buffer, position, budget())
        _check_records(header, decompressed, rules, now_ms)
        if rules.needs_schemas:
            schemas.append(_collect_schemas(decompressed, rules, budget()))
        del decompressed  # at most one decompressed batch is in memory
        position += header.size
    return tuple(schemas)


def _recompress_batches(
    buffer: WritableBytes, headers: list[BatchHeader], rules: ProduceRules, now_ms: int, budget: BudgetFactory
) -> tuple[bytearray, list[BatchHeader], tuple[SchemaUsage, ...]]:
    """Recompress the batches and validate their records, decompressing each batch only once."""
    assert rules.codec is not None
    result, schemas, position = bytearray(), [], 0
    for header in headers:
        decompressed = decompress_within_budget(buffer, position, budget())
        stored = recompress_batch(*decompressed, rules.codec, level=rules.codec_level, size_max=rules.max_message_bytes)
        _check_batch(parse_header(stored), rules)
        _check_records(header, decompressed, rules, now_ms)
        if rules.needs_schemas:
            schemas.append(_collect_schemas(decompressed, rules, budget()))
        del decompressed
        result += stored
        position += header.size
    return result, validate_produced_batches(result), tuple(schemas)


def _collect_schemas(decompressed: DecompressedBatch, rules: ProduceRules, budget: DecompressionBudget) -> SchemaUsage:
    usage = collect_schema_usage(
        *decompressed, budget, keys=rules.key_schemas is not None, values=rules.value_schemas is not None
    )
    if usage.unframed:
        raise InvalidRecord.from_reasons(usage.unframed)
    return usage


def _check_batch(header: BatchHeader, rules: ProduceRules) -> None:
    if header.size > rules.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch has {header.size} bytes, the topic accepts {rules.max_message_bytes} (max.message.bytes)",
        )


def _check_records(
    header: BatchHeader, decompressed: DecompressedBatch | None, rules: ProduceRules, now_ms: int
) -> None:
    newest, oldest = header.max_timestamp, header.base_timestamp
    if decompressed is not None and rules.is_compacted:
        oldest = validate_records(*decompressed, keys_required=True)
    elif decompressed is not None and rules.limits_oldest_timestamp:
        oldest = find_min_timestamp(*decompressed)
    if rules.uses_log_append_time:
        return
    if newest > now_ms + rules.timestamp_after_max_ms or (
        oldest >= 0 and oldest < now_ms - rules.timestamp_before_max_ms
    ):
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, "A record's timestamp is too far in the past or in the future for the topic"
        )


def _set_append_time(buffer: WritableBytes, headers: list[BatchHeader], now_ms: int) -> list[BatchHeader]:
    stamped, position = [], 0
    for header in headers:
        set_log_append_time(buffer, position, now_ms)
        stamped.append(parse_header(buffer, position))
        position += header.size
    assert all(header.timestamp_type is TimestampType.LOG_APPEND_TIME for header in stamped)
    return stamped
