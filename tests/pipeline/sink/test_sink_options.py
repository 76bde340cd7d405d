"""Tests of the sink options and of their error messages."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from chronik.pipeline.errors import OptionError
from chronik.pipeline.sink.exactly_once import ExactlyOnceSettings
from chronik.pipeline.sink.writer import SinkSettings, parse_sink_settings
from chronik.protocol.compression import Codec

ROWS = StructType([StructField("value", StringType())])
MINUTES_15_MS = 900_000


def parse(streaming: bool, options: dict[str, str]) -> SinkSettings:
    return parse_sink_settings({"bootstrap.servers": "b:1", "topic": "t"} | options, ROWS, streaming=streaming)


def parse_stream(**options: str) -> ExactlyOnceSettings | None:
    return parse(True, options).exactly_once


def parse_batch(**options: str) -> ExactlyOnceSettings | None:
    return parse(False, options).exactly_once


def test_streams_are_exactly_once_by_default() -> None:
    assert parse_stream() == ExactlyOnceSettings("chronik-sink", MINUTES_15_MS, 0)
    assert parse_stream(exactlyOnce="false") is None
    named = parse_stream(EXACTLYONCE="True", transactionalId="billing", transactionTimeoutMs="5000")
    assert named == ExactlyOnceSettings("billing", 5000, 0)
    as_in_kafka = parse(True, {"kafka.transaction.timeout.ms": "7000"})
    assert as_in_kafka.exactly_once == ExactlyOnceSettings("chronik-sink", 7000, 0)


def test_batches_are_at_least_once_without_transactional_id() -> None:
    assert parse_batch() is None
    once = parse_batch(exactlyOnce="true", transactionalId="2026-11-16", epoch="3")
    assert once == ExactlyOnceSettings("2026-11-16", MINUTES_15_MS, 3)


def test_topic_and_compression_options_are_parsed() -> None:
    settings = parse_sink_settings(
        {"kafka.bootstrap.servers": "b:1", "TOPIC": " t ", "kafka.compression.type": "zstd"}, ROWS, streaming=False
    )
    assert (settings.publish.bootstrap, settings.publish.topic, settings.publish.codec) == ("b:1", "t", Codec.ZSTD)


@pytest.mark.parametrize(
    ("streaming", "options", "message"),
    [
        (True, {"exactlyOnce": "yes"}, "exactlyOnce = 'yes': expected true or false"),
        (False, {"topic": " "}, "topic = ' ': expected the name of a topic"),
        (True, {"epoch": "1"}, "a stream uses its micro-batch numbers"),
        (True, {"transactionTimeoutMs": "0"}, "transactionTimeoutMs = '0': expected a whole number, 1 or more"),
        (False, {"exactlyOnce": "true"}, "a batch needs a transactionalId"),
        (False, {"exactlyOnce": "true", "transactionalId": "a", "epoch": "-1"}, "epoch = '-1'"),
        (False, {"transactionalId": "a"}, "transactionalId has no effect without exactlyOnce=true"),
        (False, {"epoch": "1"}, "epoch has no effect without exactlyOnce=true"),
        (True, {"exactlyOnce": "false", "transactionalId": "a"}, "transactionalId has no effect without exactlyOnce"),
        (True, {"compression": "lz4", "kafka.compression.type": "zstd"}, "compression and kafka.compression.type diff"),
        (False, {"kafka.compression.level": "3"}, "unknown option 'kafka.compression.level' of the chronik sink; did"),
    ],
)
def test_invalid_sink_options_are_rejected(streaming: bool, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(streaming, options)


def test_options_without_effect_are_logged_for_batches(caplog: pytest.LogCaptureFixture) -> None:
    parse(False, {"kafka.acks": "1", "kafka.transaction.timeout.ms": "5"})
    assert [record.message for record in caplog.records] == [
        "options without effect: kafka.acks, kafka.transaction.timeout.ms; the query ignores them"
    ]


def test_streams_do_not_log_options_in_every_micro_batch(caplog: pytest.LogCaptureFixture) -> None:
    parse(True, {"kafka.acks": "1", "checkpointLocation": "c", "queryName": "q", "path": "p"})
    assert caplog.records == []
