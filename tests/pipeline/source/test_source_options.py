"""Tests of the source options, which have the names of Spark's Kafka source, and of their error messages."""

from __future__ import annotations

import pytest

from chronik.client.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from chronik.client.records import TopicPartition
from chronik.pipeline.errors import OptionError
from chronik.pipeline.source.options import (
    COLUMN_NAMES,
    IsolationLevel,
    OffsetBound,
    SourceOptions,
    Subscription,
    Transport,
    parse_source_options,
    select_source_columns,
)

COMMON = {"kafka.bootstrap.servers": "a:1,b:2", "subscribe": "one, two"}


def parse(streaming: bool = False, /, **options: str) -> SourceOptions:
    return parse_source_options(COMMON | options, streaming=streaming)


def test_default_options_match_spark_kafka_source() -> None:
    batch, stream = parse(), parse(True)
    assert batch.read.bootstrap == "a:1,b:2"
    assert batch.subscription == Subscription(topics=("one", "two"))
    assert (batch.starting, batch.ending) == (
        OffsetBound(sentinel=EARLIEST_TIMESTAMP),
        OffsetBound(sentinel=LATEST_TIMESTAMP),
    )
    assert (stream.starting, stream.ending) == (OffsetBound(sentinel=LATEST_TIMESTAMP), None)
    assert batch.read.fail_on_data_loss
    assert batch.read.isolation is IsolationLevel.READ_UNCOMMITTED
    assert batch.read.transport is Transport.FETCH
    assert batch.read.columns == COLUMN_NAMES[:-1]


def test_option_names_are_case_insensitive() -> None:
    options = parse(True, MAXOFFSETSPERTRIGGER="5", IsolationLevel="read_committed", failondataloss="False")
    assert options.records_per_trigger_max == 5
    assert options.read.isolation is IsolationLevel.READ_COMMITTED
    assert not options.read.fail_on_data_loss


def test_starting_timestamp_overrides_per_partition_timestamps_and_offsets() -> None:
    offsets, times = '{"one": {"0": 5}}', '{"one": {"0": 1000}}'
    first = TopicPartition("one", 0)
    assert parse(startingOffsets=offsets).starting == OffsetBound(offsets=((first, 5),))
    assert parse(startingOffsets=offsets, startingOffsetsByTimestamp=times).starting == OffsetBound(
        timestamps_ms=((first, 1000),)
    )
    assert parse(startingOffsetsByTimestamp=times, startingTimestamp="7").starting == OffsetBound(timestamp_ms=7)


def test_columns_keep_order_of_option() -> None:
    assert select_source_columns({"columns": "value, OFFSET,value"}) == ("value", "offset")
    assert select_source_columns({"includeHeaders": "true"}) == COLUMN_NAMES


@pytest.mark.parametrize(
    ("streaming", "options", "message"),
    [
        (False, {"assign": '{"one": [0]}'}, "exactly one of subscribe"),
        (False, {"subscribe": ""}, "names no topic"),
        (False, {"startingOffsets": "latest"}, "startingOffsets = latest: a batch query would read nothing"),
        (False, {"startingOffsets": '{"one": {"0": 0, "1": -1}}'}, r"startingOffsets: one-1 = -1 \(latest\): a batch"),
        (False, {"endingOffsets": "earliest"}, "endingOffsets = earliest: the query would read nothing"),
        (False, {"endingOffsets": '{"one": {"0": 9, "1": -2}}'}, r"endingOffsets: one-1 = -2 \(earliest\): the query"),
        (
            False,
            {"startingOffsets": '{"one": {"0": 5}}', "endingOffsets": '{"one": {"0": 4}}'},
            "one-0: the start offset 5 is greater than the end offset 4",
        ),
        (
            False,
            {"startingOffsets": '{"one": {"0": 5, "1": 0}}', "endingOffsets": '{"one": {"0": 6, "2": 9}}'},
            "startingOffsets and endingOffsets name different partitions: one-1 only in startingOffsets; "
            "one-2 only in endingOffsets",
        ),
        (
            False,
            {"startingOffsetsByTimestamp": '{"one": {"0": 5}}', "endingOffsetsByTimestamp": '{"one": {"0": 4}}'},
            "one-0: the start timestamp 5 is greater than the end timestamp 4",
        ),
        (
            False,
            {"startingOffsetsByTimestamp": '{"one": {"0": 5}}', "endingOffsetsByTimestamp": '{"one": {"1": 6}}'},
            "startingOffsetsByTimestamp and endingOffsetsByTimestamp name different partitions",
        ),
        (
            False,
            {"startingTimestamp": "5", "endingTimestamp": "4"},
            "startingTimestamp = 5 is greater than endingTimestamp = 4",
        ),
        (False, {"subscribe": "one", "minPartitions": "0"}, "minPartitions = '0': expected a whole number, 1 or more"),
        (False, {"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition = '-1': expected a whole number, 1 or more"),
        (
            True,
            {"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
            "minOffsetsPerTrigger = 6 is greater than maxOffsetsPerTrigger = 5",
        ),
        (True, {"endingTimestamp": "7"}, "endingTimestamp is for batch queries only"),
        (True, {"endingOffsetsByTimestamp": "{}"}, "endingOffsetsByTimestamp is for batch queries only"),
        (False, {"startingOffsets": "soon"}, "expected JSON"),
        (False, {"startingOffsets": '{"one": {"0": -3}}'}, "below -2"),
        (False, {"startingTimestamp": "yesterday"}, "whole number, 0 or more"),
        (True, {"endingOffsets": "latest"}, "a stream has no end"),
        (True, {"maxOffsetsPerTrigger": "0"}, "whole number, 1 or more"),
        (True, {"maxTriggerDelay": "soon"}, "such as 30s"),
        (True, {"maxTriggerDelay": "9" * 5000}, "such as 30s"),
        (False, {"failOnDataLoss": "perhaps"}, "true or false"),
        (False, {"isolationLevel": "serializable"}, "read_uncommitted or read_committed"),
        (False, {"columns": "key,colour"}, "expected some of key"),
        (False, {"transport": "pigeon"}, "fetch or segments"),
        (False, {"transport": "segments"}, "segmentDirs is missing"),
        (False, {"kafka.security.protocol": "TLS"}, "kafka.security.protocol = 'TLS': expected PLAINTEXT or SSL"),
        (False, {"kafka.sasl.kerberos.service.name": "k"}, "kerberos.service.name is not supported"),
    ],
)
def test_invalid_option_error_names_the_option(streaming: bool, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_source_options(COMMON | options, streaming=streaming)


def test_start_and_end_may_be_equal_or_sentinels() -> None:
    parse(startingOffsets='{"one": {"0": 5}}', endingOffsets='{"one": {"0": 5}}')
    parse(startingOffsets='{"one": {"0": 5}}', endingOffsets='{"one": {"0": -1}}')
    parse(startingOffsets='{"one": {"0": -2}}', endingOffsets='{"one": {"0": 0}}')
    parse(startingTimestamp="5", endingTimestamp="5")


def test_empty_subscription_is_rejected() -> None:
    for name, value in (("subscribePattern", " "), ("assign", '{"one": []}')):
        options = {"bootstrap.servers": "a:1", name: value}
        with pytest.raises(OptionError, match=f"{name} = .*: (the pattern is empty|no partition to read)"):
            parse_source_options(options, streaming=False)


def test_path_without_subscription_is_explained() -> None:
    with pytest.raises(OptionError, match=r"set exactly one of .*; the path 'orders' is not used, subscribe names to"):
        parse_source_options({"bootstrap.servers": "a:1", "path": "orders"}, streaming=False)


def test_missing_bootstrap_servers_is_rejected() -> None:
    with pytest.raises(OptionError, match=r"bootstrap\.servers is missing"):
        parse_source_options({"subscribe": "one"}, streaming=False)


def test_max_trigger_delay_accepts_units() -> None:
    assert parse(True, maxTriggerDelay="90s").max_trigger_delay_s == 90
    assert parse(True, maxTriggerDelay="2m").max_trigger_delay_s == 120
    assert parse(True, maxTriggerDelay=str(2**63 - 1)).max_trigger_delay_s > 9e15
    assert parse(True).max_trigger_delay_s == 900


@pytest.mark.parametrize("assign", ["[]", '{"one": 0}', '{"one": [-1]}', '{"one": [true]}', "{}", "no"])
def test_malformed_assign_option_is_rejected(assign: str) -> None:
    options = {"bootstrap.servers": "a:1", "assign": assign}
    with pytest.raises(OptionError, match="assign"):
        parse_source_options(options, streaming=False)
    good = parse_source_options(options | {"assign": '{"b": [1], "a": [0, 2]}'}, streaming=False)
    assert good.subscription.partitions == (TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("a", 2))
