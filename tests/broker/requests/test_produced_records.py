"""Validation of produced records by header and checksum, with decompression only where the topic requires it."""

from __future__ import annotations

import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from chronik.broker.requests import produced_records
from chronik.broker.requests.produced_records import ProduceRules, SubjectNameStrategy, validate_produced_records
from chronik.protocol.batch import HEADER_BYTES, parse_header
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode, InvalidRecord, KafkaError
from chronik.protocol.records import Record, decode_batch, encode_batch
from chronik.protocol.schema_ids import SchemaUsage

NOW_MS = 1_700_000_000_000
PLAIN = ProduceRules(max_message_bytes=1_000_000)


def batch(*values: bytes, key: bytes | None = b"k", codec: Codec = Codec.NONE, timestamp: int = NOW_MS) -> bytearray:
    records = [Record(offset, timestamp, key, value) for offset, value in enumerate(values)]
    return bytearray(encode_batch(records, codec=codec))


def refusal(records: bytearray | None, rules: ProduceRules = PLAIN, version: int = 9) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        validate_produced_records(None if records is None else memoryview(records), rules, version, NOW_MS)
    return raised.value.code


def test_valid_batch_is_accepted_unchanged() -> None:
    sent = batch(b"a", b"b")
    incoming = validate_produced_records(memoryview(sent), PLAIN, 9, NOW_MS)
    assert bytes(incoming.buffer) == bytes(sent)
    assert incoming.headers == [parse_header(sent)]
    assert incoming.log_append_time_ms == -1


@pytest.mark.parametrize("missing", [None, bytearray()])
def test_partition_without_records_is_rejected(missing: bytearray | None) -> None:
    assert refusal(missing) is ErrorCode.INVALID_RECORD


def test_bit_flip_is_rejected_as_corrupt() -> None:
    sent = batch(b"a")
    sent[-1] ^= 1
    assert refusal(sent) is ErrorCode.CORRUPT_MESSAGE


def test_two_batches_for_one_partition_are_rejected() -> None:
    assert refusal(batch(b"a") + batch(b"b")) is ErrorCode.INVALID_RECORD


def test_batch_larger_than_max_message_bytes_is_rejected() -> None:
    sent = batch(b"x" * 1000)
    validate_produced_records(memoryview(sent), ProduceRules(max_message_bytes=len(sent)), 9, NOW_MS)
    assert refusal(sent, ProduceRules(max_message_bytes=len(sent) - 1)) is ErrorCode.MESSAGE_TOO_LARGE


def test_compacted_topic_rejects_records_without_key() -> None:
    rules = ProduceRules(max_message_bytes=1_000_000, is_compacted=True)
    validate_produced_records(memoryview(batch(b"a")), rules, 9, NOW_MS)
    assert refusal(batch(b"a", key=None), rules) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [None, Codec.ZSTD, Codec.GZIP])
def test_batch_is_decompressed_only_once(codec: Codec | None) -> None:
    rules = ProduceRules(max_message_bytes=10**6, is_compacted=True, codec=codec, timestamp_before_max_ms=1_000)
    sent = batch(*[b"v"] * 1_000, codec=Codec.ZSTD)
    budget = DecompressionBudget(10**6, 1_000, 10**6)
    incoming = validate_produced_records(memoryview(sent), rules, 9, NOW_MS, lambda: budget)
    assert [header.codec for header in incoming.headers] == [Codec.ZSTD if codec is None else codec]
    assert (budget.records_decompressed, budget.records_left) == (1_000, 0)
    assert budget.bytes_decompressed == len(batch(*[b"v"] * 1_000)) - HEADER_BYTES
    late = batch(*[b"v"] * 1_000, codec=Codec.ZSTD, timestamp=NOW_MS - 1_001)
    assert refusal(late, rules) is ErrorCode.INVALID_TIMESTAMP
    assert refusal(batch(b"v", key=None, codec=Codec.ZSTD), rules) is ErrorCode.INVALID_RECORD


def test_too_large_batch_is_rejected_without_decompression() -> None:
    budget = DecompressionBudget(10**6, 1_000, 10**6)
    sent, rules = batch(b"x" * 1_000), ProduceRules(max_message_bytes=1_000, is_compacted=True)
    with pytest.raises(KafkaError):
        validate_produced_records(memoryview(sent), rules, 9, NOW_MS, lambda: budget)
    assert budget.records_decompressed == 0


def test_zstd_requires_produce_version_7() -> None:
    sent = batch(b"a", codec=Codec.ZSTD)
    validate_produced_records(memoryview(sent), PLAIN, 7, NOW_MS)
    assert refusal(sent, version=6) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_log_append_time_replaces_producer_timestamps() -> None:
    sent = batch(b"a", b"b", timestamp=5)
    incoming = validate_produced_records(
        memoryview(sent), ProduceRules(max_message_bytes=1_000_000, uses_log_append_time=True), 9, NOW_MS
    )
    assert incoming.log_append_time_ms == NOW_MS
    assert [record.timestamp for record in decode_batch(incoming.buffer)] == [NOW_MS, NOW_MS]


@pytest.mark.parametrize("codec", list(Codec))
def test_batch_is_recompressed_with_topic_codec(codec: Codec) -> None:
    sent = batch(b"a" * 100, b"b" * 100, codec=Codec.GZIP)
    incoming = validate_produced_records(
        memoryview(sent), ProduceRules(max_message_bytes=1_000_000, codec=codec), 9, NOW_MS
    )
    assert [header.codec for header in incoming.headers] == [codec]
    assert [record.value for record in decode_batch(incoming.buffer)] == [b"a" * 100, b"b" * 100]


@pytest.mark.parametrize(("timestamp", "allowed"), [(NOW_MS + 1000, True), (NOW_MS + 1001, False)])
def test_timestamp_too_far_in_the_future_is_rejected(timestamp: int, allowed: bool) -> None:
    rules = ProduceRules(max_message_bytes=1_000_000, timestamp_after_max_ms=1000)
    sent = batch(b"a", timestamp=timestamp)
    if allowed:
        validate_produced_records(memoryview(sent), rules, 9, NOW_MS)
    else:
        assert refusal(sent, rules) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize(("timestamp", "allowed"), [(NOW_MS - 1000, True), (NOW_MS - 1001, False)])
def test_timestamp_too_far_in_the_past_is_rejected(timestamp: int, allowed: bool) -> None:
    rules = ProduceRules(max_message_bytes=1_000_000, timestamp_before_max_ms=1000)
    sent = batch(b"a", timestamp=timestamp)
    if allowed:
        validate_produced_records(memoryview(sent), rules, 9, NOW_MS)
    else:
        assert refusal(sent, rules) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_converted_to_batches(magic: int) -> None:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=100_000)
    for offset in range(3):
        builder.append(offset, timestamp=NOW_MS, key=b"k", value=b"%d" % offset)
    sent = bytearray(builder.build())
    incoming = validate_produced_records(memoryview(sent), PLAIN, 2, NOW_MS)
    assert [record.value for record in decode_batch(incoming.buffer)] == [b"0", b"1", b"2"]
    assert refusal(sent, version=3) is ErrorCode.INVALID_RECORD


def test_validation_does_not_modify_request_buffer() -> None:
    """An accepted request may have to wait for the leader and be validated again."""
    rules = ProduceRules(max_message_bytes=1_000_000, uses_log_append_time=True)
    sent = batch(b"a")
    first, second = (validate_produced_records(memoryview(sent), rules, 9, NOW_MS + later) for later in (0, 5))
    assert [each.headers[0].max_timestamp for each in (first, second)] == [NOW_MS, NOW_MS + 5]
    assert bytes(sent) == bytes(batch(b"a"))


def framed(schema_id: int) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + b"payload"


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("codec", [None, Codec.GZIP])
def test_schema_rules_return_schemas_of_records(codec: Codec | None, is_compacted: bool) -> None:
    rules = ProduceRules(10**6, is_compacted=is_compacted, codec=codec, value_schemas=SubjectNameStrategy.TOPIC)
    sent = batch(framed(1), framed(2), framed(1), codec=Codec.ZSTD)
    incoming = validate_produced_records(memoryview(sent), rules, 9, NOW_MS)
    assert incoming.schemas == (SchemaUsage({}, {1: 0, 2: 1}, {}),)
    assert incoming.headers[0].codec == (Codec.ZSTD if codec is None else codec)


def test_schema_rules_apply_to_old_message_formats() -> None:
    builder = LegacyRecordBatchBuilder(1, 0, 10**6)
    builder.append(0, NOW_MS, b"k", framed(3))
    rules = ProduceRules(10**6, value_schemas=SubjectNameStrategy.TOPIC)
    incoming = validate_produced_records(memoryview(bytearray(builder.build())), rules, 2, NOW_MS)
    assert incoming.schemas == (SchemaUsage({}, {3: 0}, {}),)


def test_record_without_schema_id_is_rejected_with_its_index() -> None:
    rules = ProduceRules(10**6, key_schemas=SubjectNameStrategy.TOPIC)
    with pytest.raises(InvalidRecord) as error:
        validate_produced_records(memoryview(batch(b"a", b"b")), rules, 9, NOW_MS)
    assert error.value.record_indexes == (0, 1)
    assert error.value.record_reasons == ("the key does not start with a schema id",) * 2
    assert error.value.message == "record 0 is invalid: the key does not start with a schema id (and 1 more)"


def test_schema_rules_alone_do_not_limit_timestamps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(produced_records, "find_min_timestamp")  # another scan of all records
    rules = ProduceRules(10**6, value_schemas=SubjectNameStrategy.TOPIC)
    assert not rules.limits_oldest_timestamp
    validate_produced_records(memoryview(batch(framed(1), timestamp=1)), rules, 9, NOW_MS)


def test_topic_without_schema_rules_never_searches_for_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(produced_records, "collect_schema_usage")
    for rules in (PLAIN, ProduceRules(10**6, is_compacted=True), ProduceRules(10**6, codec=Codec.ZSTD)):
        incoming = validate_produced_records(memoryview(batch(b"a")), rules, 9, NOW_MS)
        assert incoming.schemas == ()
    assert not PLAIN.needs_record_validation
