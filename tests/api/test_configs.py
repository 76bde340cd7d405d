"""Topic and broker configs: changes apply immediately, invalid changes are rejected, and values have a source."""

from __future__ import annotations

import time

import pytest

from chronik.protocol.batch import build_batch, parse_header
from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from chronik.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from chronik.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from chronik.protocol.records import iter_records
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.api import request_builders
from tests.api.request_builders import APPEND, BROKER, DELETE, SET, SUBTRACT, TOPIC
from tests.raw import RawClient

DEADLINE_SECONDS = 60
DYNAMIC_TOPIC, DYNAMIC_DEFAULT_BROKER, STATIC, DEFAULT = 1, 3, 4, 5


def describe_configs(
    client: RawClient, kind: int, name: str, keys: list[str] | None = None
) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (result,) = client.request(request, 4, DescribeConfigsResponse).results
    assert result.error_code == ErrorCode.NONE
    return {config.name: config for config in result.configs}


# Effects of changes


def test_max_message_bytes_change_applies_immediately(client: RawClient, chronik_topic: str) -> None:
    large = request_builders.batch(b"v" * 2000)
    assert request_builders.produce(client, chronik_topic, large).error_code == ErrorCode.NONE
    assert (
        request_builders.alter_configs(client, TOPIC, chronik_topic, ("max.message.bytes", SET, "1000"))
        is ErrorCode.NONE
    )
    assert request_builders.produce(client, chronik_topic, large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (
        request_builders.alter_configs(client, TOPIC, chronik_topic, ("max.message.bytes", DELETE, None))
        is ErrorCode.NONE
    )
    assert request_builders.produce(client, chronik_topic, large).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("name", "codec", "key", "levels"),
    [
        ("uncompressed", Codec.NONE, None, [""]),
        ("gzip", Codec.GZIP, "compression.gzip.level", ["-1", "1", "9"]),
        ("snappy", Codec.SNAPPY, None, [""]),
        ("lz4", Codec.LZ4, "compression.lz4.level", ["1", "9", "17"]),
        ("zstd", Codec.ZSTD, "compression.zstd.level", ["-131072", "3", "22"]),
    ],
)
def test_batches_are_recompressed_with_topic_codec_and_level(
    client: RawClient, chronik_topic: str, name: str, codec: Codec, key: str | None, levels: list[str]
) -> None:
    assert (
        request_builders.alter_configs(client, TOPIC, chronik_topic, ("compression.type", SET, name)) is ErrorCode.NONE
    )
    for offset, level in enumerate(levels):
        if key is not None:
            assert request_builders.alter_configs(client, TOPIC, chronik_topic, (key, SET, level)) is ErrorCode.NONE
        sent = Codec.LZ4 if codec is not Codec.LZ4 else Codec.GZIP
        assert (
            request_builders.produce(client, chronik_topic, request_builders.batch(b"v" * 500, codec=sent)).error_code
            == ErrorCode.NONE
        )
        data = request_builders.fetch(client, chronik_topic, offset)
        assert parse_header(request_builders.records_of(data)).codec == codec
        assert request_builders.values(data) == [b"v" * 500]


def test_log_append_time_overrides_record_timestamp(client: RawClient, chronik_topic: str) -> None:
    assert (
        request_builders.alter_configs(client, TOPIC, chronik_topic, ("message.timestamp.type", SET, "LogAppendTime"))
        is ErrorCode.NONE
    )
    before = int(time.time() * 1000)
    answer = request_builders.produce(client, chronik_topic, request_builders.batch(b"v", timestamp=1000))
    (record,) = iter_records(request_builders.records_of(request_builders.fetch(client, chronik_topic, 0)))
    assert before <= record.timestamp == answer.log_append_time_ms


@pytest.mark.chronik_topic(configs={"message.timestamp.after.max.ms": "1000"})
def test_record_with_future_timestamp_is_rejected(client: RawClient, chronik_topic: str) -> None:
    later = int(time.time() * 1000) + 3_600_000
    answer = request_builders.produce(client, chronik_topic, request_builders.batch(b"v", timestamp=later))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP


def test_retention_change_deletes_old_segments(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory(broker={"log.retention.check.interval.ms": 20})
    broker.create_topic("kept", configs={"internal.segment.bytes": "1000", "retention.ms": "-1"})
    with RawClient(broker.bootstrap) as client:
        for _ in range(5):
            request_builders.produce(client, "kept", request_builders.batch(b"v" * 600, timestamp=1000))
        assert request_builders.list_offset(client, "kept", -2).offset == 0
        assert request_builders.alter_configs(client, TOPIC, "kept", ("retention.ms", SET, "1000")) is ErrorCode.NONE
        deadline = time.monotonic() + DEADLINE_SECONDS
        while request_builders.list_offset(client, "kept", -2).offset < 5:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert request_builders.fetch(client, "kept", 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert request_builders.produce(client, "kept", request_builders.batch(b"v")).base_offset == 5


def test_undecodable_topic_does_not_stop_compaction_of_others(
    chronik_broker_factory: BrokerFactory,
) -> None:
    broker = chronik_broker_factory(broker={"log.cleaner.backoff.ms": 20})
    broker.create_topic("garbage", configs={"internal.segment.bytes": "1000"})
    broker.create_topic("good", configs={"internal.segment.bytes": "1000", "cleanup.policy": "compact"})
    unreadable = build_batch(parse_header(request_builders.batch(b"v", codec=Codec.GZIP)), b"no gzip at all" * 50)
    with RawClient(broker.bootstrap) as client:
        for _ in range(5):
            assert request_builders.produce(client, "garbage", unreadable).error_code == ErrorCode.NONE
            request_builders.produce(client, "good", request_builders.batch(b"v" * 600))
        assert (
            request_builders.alter_configs(client, TOPIC, "garbage", ("cleanup.policy", SET, "compact"))
            is ErrorCode.NONE
        )
        _wait_for_log(broker, "garbage-0: compaction failed")
        _wait_for_log(broker, "good-0: log compacted")
        assert request_builders.produce(client, "good", request_builders.batch(b"v")).error_code == ErrorCode.NONE


def _wait_for_log(broker: Broker, text: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while text not in broker.log:
        assert time.monotonic() < deadline
        assert broker.is_running
        time.sleep(0.02)


# Rejected changes


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("cleanup.policy", APPEND, "compact")], ErrorCode.NONE),
        ([("cleanup.policy", SUBTRACT, "delete")], ErrorCode.NONE),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1_000")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "٣")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "1" * 10_000)], ErrorCode.INVALID_CONFIG),
        ([("preallocate", SET, "True")], ErrorCode.NONE),
        ([("preallocate", SET, "yes")], ErrorCode.INVALID_CONFIG),
        ([("max.compaction.lag.ms", SET, "5000")], ErrorCode.NONE),
        ([("max.compaction.lag.ms", SET, "500")], ErrorCode.INVALID_CONFIG),
        ([("max.compaction.lag.ms", SET, "500"), ("min.compaction.lag.ms", DELETE, None)], ErrorCode.NONE),
        ([("no.such.key", SET, "1")], ErrorCode.INVALID_CONFIG),
    ],
)
@pytest.mark.chronik_topic(configs={"min.compaction.lag.ms": "1000"})
def test_config_changes_are_validated_by_their_result(
    client: RawClient, chronik_topic: str, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    before = describe_configs(client, TOPIC, chronik_topic)
    assert request_builders.alter_configs(client, TOPIC, chronik_topic, *changes) is code
    assert (describe_configs(client, TOPIC, chronik_topic) == before) is (code is not ErrorCode.NONE)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "no-such", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "77", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_configs_of_unknown_resource_are_rejected(client: RawClient, kind: int, name: str, code: ErrorCode) -> None:
    assert request_builders.alter_configs(client, kind, name, ("retention.ms", DELETE, None)) is code


def test_static_broker_config_cannot_be_altered(client: RawClient) -> None:
    assert (
        request_builders.alter_configs(client, BROKER, "1", ("socket.request.max.bytes", SET, "5"))
        is ErrorCode.INVALID_REQUEST
    )


# AlterConfigs


@pytest.mark.chronik_topic(configs={"retention.ms": "1000", "segment.ms": "2000"})
def test_alter_configs_replaces_all_configs(client: RawClient, chronik_topic: str) -> None:
    resource = AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=chronik_topic,
        configs=[AlterableConfig(name="retention.ms", value="3000")],
    )
    for validate_only, retention, segment in ((True, "1000", "2000"), (False, "3000", "604800000")):
        request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
        assert client.request(request, 2, AlterConfigsResponse).responses[0].error_code == ErrorCode.NONE
        configs = describe_configs(client, TOPIC, chronik_topic)
        assert (configs["retention.ms"].value, configs["segment.ms"].value) == (retention, segment)


# Sources


def test_described_config_has_its_source_and_synonyms(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory(broker={"log.retention.ms": 5000})
    broker.create_topic("topic")
    with RawClient(broker.bootstrap) as client:

        def retention() -> tuple[str | None, int, list[int]]:
            config = describe_configs(client, TOPIC, "topic", ["retention.ms"])["retention.ms"]
            return config.value, config.config_source, [synonym.source for synonym in config.synonyms]

        assert retention() == ("5000", STATIC, [STATIC, DEFAULT])
        assert request_builders.alter_configs(client, BROKER, "", ("log.retention.ms", SET, "6000")) is ErrorCode.NONE
        assert retention() == ("6000", DYNAMIC_DEFAULT_BROKER, [DYNAMIC_DEFAULT_BROKER, STATIC, DEFAULT])
        assert request_builders.alter_configs(client, TOPIC, "topic", ("retention.ms", SET, "7000")) is ErrorCode.NONE
        assert retention()[:2] == ("7000", DYNAMIC_TOPIC)


def test_describe_broker_with_empty_key_list_returns_all_configs(chronik_broker: Broker, client: RawClient) -> None:
    configs = describe_configs(client, BROKER, "1", [])
    assert len(configs) > 50
    advertised = configs["advertised.listeners"]
    assert advertised.value == f"PLAINTEXT://127.0.0.1:{chronik_broker.port}"
    assert [(each.value, each.source) for each in advertised.synonyms] == [(advertised.value, STATIC)]


# ListConfigResources


def resources(client: RawClient, version: int, *kinds: int) -> tuple[int, set[tuple[int, str]]]:
    response = client.request(
        ListConfigResourcesRequest(resource_types=list(kinds)), version, ListConfigResourcesResponse
    )
    return response.error_code, {(each.resource_type, each.resource_name) for each in response.config_resources}


def test_list_config_resources_returns_topics_and_brokers(client: RawClient, chronik_topic: str) -> None:
    code, everything = resources(client, 1)
    assert code == ErrorCode.NONE
    assert everything >= {(TOPIC, chronik_topic), (BROKER, "1")}
    assert resources(client, 1, BROKER) == (ErrorCode.NONE, {(BROKER, "1")})
    assert (TOPIC, chronik_topic) in resources(client, 1, TOPIC)[1]


def test_list_config_resources_returns_loggers_and_groups_with_configs(client: RawClient) -> None:
    assert resources(client, 0) == (ErrorCode.NONE, set())
    assert resources(client, 1, 8, 16) == (ErrorCode.NONE, {(8, "1")})
    name = unique_group()
    assert (32, name) not in resources(client, 1, 32)[1]
    assert (
        request_builders.alter_configs(client, 32, name, ("consumer.session.timeout.ms", SET, "46000"))
        is ErrorCode.NONE
    )
    assert (32, name) in resources(client, 1, 32)[1]
    assert (
        request_builders.alter_configs(client, 32, name, ("consumer.session.timeout.ms", DELETE, None))
        is ErrorCode.NONE
    )
    assert (32, name) not in resources(client, 1)[1]
    assert resources(client, 1, TOPIC, 3) == (ErrorCode.UNSUPPORTED_VERSION, set())


def unique_group() -> str:
    return f"configured-{time.monotonic_ns()}"
