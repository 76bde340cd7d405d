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
        {"kafka.bootstrap.servers": "b:1", "TOPIC": "t", "kafka.compression.type": "zstd"}, ROWS, streaming=False
    )
    assert (settings.publish.bootstrap, settings.publish.topic, settings.publish.codec) == ("b:1", "t", Codec.ZSTD)


@pytest.mark.parametrize(
    ("streaming", "options", "message"),
    [
        (True, {"exactlyOnce": "yes"}, "exactlyOnce = 'yes': expected true or false"),
        (True, {"epoch": "1"}, "a stream uses its micro-batch numbers"),
        (True, {"transactionTimeoutMs": "0"}, "transactionTimeoutMs = '0': expected a whole number, 1 or more"),
        (False, {"exactlyOnce": "true"}, "a batch needs a transactionalId"),
        (False, {"exactlyOnce": "true", "transactionalId": "a", "epoch": "-1"}, "epoch = '-1'"),
    ],
)
def test_invalid_sink_options_are_rejected(streaming: bool, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(streaming, options)
