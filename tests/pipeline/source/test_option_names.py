"""Tests of option names: unknown and unsupported options of the source and the sink are rejected with a suggestion."""

from __future__ import annotations

import logging

import pytest

from chronik.pipeline.errors import OptionError
from chronik.pipeline.source.kafka_client_configs import KAFKA_CLIENT_CONFIGS
from chronik.pipeline.source.option_names import (
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    check_sink_option_names,
    check_source_option_names,
)
from chronik.pipeline.source.options import parse_bootstrap_servers, parse_source_options

COMMON = {"kafka.bootstrap.servers": "a:1", "subscribe": "one"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("startingoffset", "unknown option 'startingoffset' of the chronik source; did you mean 'startingOffsets'?"),
        ("Starting_Offsets", "unknown option 'starting_offsets' of the chronik source; did you mean 'startingOffsets'"),
        ("kafka.fetch.max.byte", "'kafka.fetch.max.byte' of the chronik source; did you mean 'kafka.fetch.max.bytes'?"),
        ("group.id", "unknown option 'group.id' of the chronik source; did you mean 'kafka.group.id'?"),
        ("security.protocol", "did you mean 'kafka.security.protocol'?"),
        (
            "zebra",
            "unknown option 'zebra' of the chronik source; known options: assign, bootstrap.servers, clientConfig",
        ),
        ("topic", "option topic is for writes; to read a topic, set subscribe"),
        ("checkpointlocation", "option checkpointLocation is for writes: set it on writeStream"),
    ],
)
def test_unknown_source_option_is_rejected_with_suggestion(name: str, message: str) -> None:
    with pytest.raises(OptionError) as rejected:
        parse_source_options(COMMON | {name: "x"}, streaming=True)
    assert message in str(rejected.value)
    assert len(str(rejected.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("topics", "unknown option 'topics' of the chronik sink; did you mean 'topic'?"),
        ("exactly_once", "unknown option 'exactly_once' of the chronik sink; did you mean 'exactlyOnce'?"),
        ("kafka.compression.typ", "did you mean 'kafka.compression.type'?"),
        ("linger.ms", "did you mean 'kafka.linger.ms'?"),
        ("subscribe", "option subscribe is for reads; to write to a topic, set topic"),
        ("startingoffsets", "option startingOffsets is for reads"),
        ("__clustering_columns", "clusterBy is not supported: a topic has no clustering columns"),
    ],
)
def test_unknown_sink_option_is_rejected_with_suggestion(name: str, message: str) -> None:
    with pytest.raises(OptionError) as rejected:
        check_sink_option_names(["kafka.bootstrap.servers", name])
    assert message in str(rejected.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kafka.auto.offset.reset", "kafka.auto.offset.reset is not supported: set startingOffsets"),
        ("kafka.key.deserializer", "kafka.key.deserializer is not supported: keys are read as bytes"),
        ("kafka.value.deserializer", "kafka.value.deserializer is not supported: values are read as bytes"),
        ("kafka.enable.auto.commit", "kafka.enable.auto.commit is not supported: set groupId"),
        ("kafka.interceptor.classes", "kafka.interceptor.classes is not supported"),
    ],
)
def test_configs_that_spark_kafka_source_rejects_are_rejected(name: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        check_source_option_names([name])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kafka.key.serializer", "kafka.key.serializer is not supported: keys are written as bytes"),
        ("kafka.value.serializer", "kafka.value.serializer is not supported: values are written as bytes"),
        ("kafka.transactional.id", "kafka.transactional.id is not supported: set transactionalId"),
    ],
)
def test_configs_that_sink_cannot_honour_are_rejected(name: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        check_sink_option_names([name])


def test_known_names_are_accepted_in_any_case() -> None:
    check_source_option_names([name.upper() for name in SOURCE_OPTIONS])
    check_sink_option_names([name.upper() for name in SINK_OPTIONS])
    check_source_option_names(["path", "paths", "groupidprefix", "fetchoffset.numretries"])
    check_sink_option_names(["path", "checkpointlocation", "queryname", "includeheaders"])


def test_client_configs_of_kafka_are_accepted_by_source_and_sink() -> None:
    rejected = {"auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit"}
    rejected |= {"interceptor.classes", "key.serializer", "value.serializer", "transactional.id"}
    names = [f"kafka.{name}" for name in KAFKA_CLIENT_CONFIGS - rejected]
    check_source_option_names(names)
    check_sink_option_names(names)
    assert {"fetch.max.bytes", "linger.ms", "client.id", "bootstrap.controllers"} < KAFKA_CLIENT_CONFIGS


def test_options_without_effect_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        parse_source_options(
            COMMON | {"kafka.fetch.max.bytes": "1", "groupIdPrefix": "g", "maxOffsetsPerTrigger": "5"}, streaming=False
        )
    assert [record.message for record in caplog.records] == [
        "options without effect: groupIdPrefix, kafka.fetch.max.bytes, maxOffsetsPerTrigger; the query ignores them"
    ]
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        parse_source_options(
            COMMON | {"kafka.group.id": "g", "kafka.isolation.level": "read_committed", "path": "p"}, streaming=True
        )
    assert caplog.records == []


def test_table_properties_are_rejected_with_explanation() -> None:
    with pytest.raises(OptionError, match=r"CREATE TABLE … USING chronik is not supported.*CREATE TEMPORARY VIEW"):
        check_source_option_names(["provider", "owner", "subscribe", "option.subscribe"])


def test_security_config_that_client_cannot_honour_is_rejected() -> None:
    servers = {"bootstrap.servers": "a:1"}
    with pytest.raises(OptionError, match=r"kafka\.ssl\.cipher\.suites is not supported: ignoring .* could weaken"):
        parse_bootstrap_servers(servers | {"kafka.ssl.cipher.suites": "x"})
    assert parse_bootstrap_servers(servers | {"kafka.sasl.login.refresh.buffer.seconds": "5"}) == "a:1"


def test_contradicting_aliases_are_rejected() -> None:
    options = COMMON | {"bootstrap.servers": "b:2"}
    with pytest.raises(OptionError, match=r"bootstrap\.servers and kafka\.bootstrap\.servers differ: set only one"):
        parse_source_options(options, streaming=False)
    assert parse_source_options(COMMON | {"bootstrap.servers": "a:1"}, streaming=False).read.bootstrap == "a:1"
    with pytest.raises(OptionError, match=r"groupId and kafka\.group\.id differ"):
        parse_source_options(COMMON | {"groupId": "a", "kafka.group.id": "b"}, streaming=True)
