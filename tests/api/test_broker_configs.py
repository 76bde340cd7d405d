"""Kafka's broker configs changed at runtime: some take effect immediately, others are only stored and described."""

from __future__ import annotations

import time

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from chronik.protocol.messages.describe_configs import DescribeConfigsResourceResult
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.api import request_builders
from tests.api.request_builders import APPEND, BROKER, DELETE, SET, SUBTRACT, TOPIC
from tests.api.test_configs import describe_configs
from tests.raw import RawClient

DEADLINE_SECONDS = 60
UNKNOWN_TYPE = 0
DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC, DEFAULT = 2, 3, 4, 5

STORED_ONLY = {
    "num.io.threads": "9",
    "background.threads": "9",
    "num.network.threads": "2",
    "num.replica.fetchers": "2",
    "log.cleaner.threads": "2",
    "log.cleaner.dedupe.buffer.size": "200000000",
    "max.connections.per.ip": "100",
}


@pytest.fixture
def own(chronik_broker_factory: BrokerFactory) -> Broker:
    """Return a broker whose configs only this test changes."""
    return chronik_broker_factory()


def one(client: RawClient, name: str, broker: str = "1") -> DescribeConfigsResourceResult:
    return describe_configs(client, BROKER, broker, [name])[name]


def test_configs_without_effect_are_stored_and_described(own: Broker) -> None:
    with RawClient(own.bootstrap) as client:
        for name, value in STORED_ONLY.items():
            before = one(client, name)
            assert (before.config_source, before.read_only, before.is_sensitive) == (DEFAULT, False, False), name
            assert request_builders.alter_configs(client, BROKER, "", (name, SET, value)) is ErrorCode.NONE, name
            assert (one(client, name).value, one(client, name).config_source) == (value, DYNAMIC_DEFAULT_BROKER)
        relogin = "sasl.kerberos.min.time.before.relogin"
        assert request_builders.alter_configs(client, BROKER, "", (relogin, SET, "58000")) is ErrorCode.INVALID_REQUEST
        assert request_builders.alter_configs(client, BROKER, "1", (relogin, SET, "58000")) is ErrorCode.NONE
        assert (one(client, relogin).value, one(client, relogin).config_source) == ("58000", DYNAMIC_BROKER)
        assert {name: config.value for name, config in describe_configs(client, BROKER, "").items()} == STORED_ONLY
    own.restart()
    with RawClient(own.bootstrap) as client:
        assert {name: one(client, name).value for name in STORED_ONLY} == STORED_ONLY


def test_static_configs_are_rejected_with_kafkas_message(own: Broker) -> None:
    resource = AlterConfigsResource(
        resource_type=BROKER,
        resource_name="1",
        configs=[AlterableConfig(name=name, value="5") for name in ("num.partitions", "log.retention.hours")],
    )
    with RawClient(own.bootstrap) as client:
        for name in ("log.retention.hours", "num.partitions", "broker.id", "process.roles"):
            assert request_builders.alter_configs(client, BROKER, "", (name, SET, "5")) is ErrorCode.INVALID_REQUEST, (
                name
            )
            assert request_builders.alter_configs(client, BROKER, "", (name, DELETE, None)) is ErrorCode.NONE, name
        (answer,) = client.request(AlterConfigsRequest(resources=[resource]), 2, AlterConfigsResponse).responses
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Cannot update these configs dynamically: [log.retention.hours, num.partitions]",
    )


def test_unknown_config_is_stored_and_its_value_hidden(own: Broker) -> None:
    with RawClient(own.bootstrap) as client:
        assert (
            request_builders.alter_configs(client, BROKER, "1", ("some.plugins.key", SET, "secret")) is ErrorCode.NONE
        )
        assert request_builders.alter_configs(client, BROKER, "", ("some.plugins.key", SET, "secret")) is ErrorCode.NONE
        for broker, source in (("1", DYNAMIC_BROKER), ("", DYNAMIC_DEFAULT_BROKER)):
            config = one(client, "some.plugins.key", broker)
            assert (config.value, config.config_source, config.config_type) == (None, source, UNKNOWN_TYPE)
            assert (config.is_sensitive, config.read_only) == (True, True)
            assert [synonym.value for synonym in config.synonyms] == [None] * len(config.synonyms)
        assert request_builders.alter_configs(client, BROKER, "1", ("some.plugins.key", DELETE, None)) is ErrorCode.NONE
        assert request_builders.alter_configs(client, BROKER, "", ("some.plugins.key", DELETE, None)) is ErrorCode.NONE
        assert "some.plugins.key" not in describe_configs(client, BROKER, "1")


def test_password_config_is_stored_and_never_returned(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory(broker={"ssl.key.password": "hunter2"})
    listener_config = "listener.name.plaintext.ssl.keystore.password"
    with RawClient(broker.bootstrap) as client:
        assert (
            request_builders.alter_configs(client, BROKER, "1", ("ssl.keystore.password", SET, "x"))
            is ErrorCode.INVALID_REQUEST
        )
        assert request_builders.alter_configs(client, BROKER, "1", (listener_config, SET, "x")) is ErrorCode.NONE
        for name, source in (("ssl.key.password", STATIC), (listener_config, DYNAMIC_BROKER)):
            config = one(client, name)
            assert (config.value, config.is_sensitive, config.config_source) == (None, True, source)
            assert {synonym.value for synonym in config.synonyms} == {None}


def test_list_configs_without_effect_support_append_and_subtract(own: Broker) -> None:
    with RawClient(own.bootstrap) as client:
        assert request_builders.alter_configs(client, BROKER, "", ("config.providers", APPEND, "a,b")) is ErrorCode.NONE
        assert request_builders.alter_configs(client, BROKER, "", ("config.providers", SUBTRACT, "a")) is ErrorCode.NONE
        assert one(client, "config.providers").value == "b"
        assert (
            request_builders.alter_configs(client, BROKER, "", ("num.io.threads", APPEND, "1"))
            is ErrorCode.INVALID_CONFIG
        )


def test_max_connections_applies_immediately_and_after_restart(own: Broker) -> None:
    with RawClient(own.bootstrap) as client:
        assert request_builders.alter_configs(client, BROKER, "", ("max.connections", SET, "1")) is ErrorCode.NONE
        with RawClient(own.bootstrap) as refused:
            assert refused.wait_for_close()
        assert request_builders.alter_configs(client, BROKER, "", ("max.connections", SET, "2")) is ErrorCode.NONE
        with RawClient(own.bootstrap) as second:
            assert describe_configs(second, BROKER, "1", ["max.connections"])
    own.restart()
    with RawClient(own.bootstrap) as first, RawClient(own.bootstrap) as second:
        assert one(first, "max.connections").value == one(second, "max.connections").value == "2"
        with RawClient(own.bootstrap) as third:
            assert third.wait_for_close()


def test_shorter_cleaner_backoff_applies_immediately(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory(broker={"log.cleaner.backoff.ms": 3_600_000})
    broker.create_topic("compacted", configs={"cleanup.policy": "compact", "segment.ms": "1"})
    with RawClient(broker.bootstrap) as client:
        for second in range(3):
            request_builders.produce(client, "compacted", request_builders.batch(b"v" * 100, timestamp=second * 1000))
        assert (
            request_builders.alter_configs(client, BROKER, "", ("log.cleaner.backoff.ms", SET, "20")) is ErrorCode.NONE
        )
        deadline = time.monotonic() + DEADLINE_SECONDS
        while "compacted-0: log compacted" not in broker.log:
            assert time.monotonic() < deadline, broker.log
            time.sleep(0.05)


def test_zero_cleaner_backoff_does_not_block_the_event_loop(own: Broker) -> None:
    """A node without any partition must not spin either."""
    with RawClient(own.bootstrap) as client:
        assert (
            request_builders.alter_configs(client, BROKER, "", ("log.cleaner.backoff.ms", SET, "0")) is ErrorCode.NONE
        )
        for _ in range(3):
            assert one(client, "log.cleaner.backoff.ms").value == "0"


def test_log_retention_hours_applies_to_topics(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory(
        broker={"log.retention.hours": 1, "log.roll.ms": 1, "log.retention.check.interval.ms": 20}
    )
    broker.create_topic("short")
    with RawClient(broker.bootstrap) as client:
        retention = describe_configs(client, TOPIC, "short", ["retention.ms"])["retention.ms"]
        assert (retention.value, retention.config_source) == ("3600000", STATIC)
        assert retention.synonyms[0].name == "log.retention.hours"
        for _ in range(3):
            request_builders.produce(
                client, "short", request_builders.batch(b"v", timestamp=int(time.time() * 1000) - 2 * 3_600_000)
            )
        deadline = time.monotonic() + DEADLINE_SECONDS
        while request_builders.list_offset(client, "short", -2).offset < 3:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_changed_topic_defaults_apply_immediately(own: Broker) -> None:
    own.create_topic("plain")
    large = request_builders.batch(b"v" * 2000)
    with RawClient(own.bootstrap) as client:
        assert request_builders.produce(client, "plain", large).error_code == ErrorCode.NONE
        assert request_builders.alter_configs(client, BROKER, "", ("message.max.bytes", SET, "1000")) is ErrorCode.NONE
        assert request_builders.produce(client, "plain", large).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert request_builders.alter_configs(client, BROKER, "1", ("message.max.bytes", SET, "5000")) is ErrorCode.NONE
        assert request_builders.produce(client, "plain", large).error_code == ErrorCode.NONE


def test_tiered_storage_configs_accept_only_their_defaults(client: RawClient, chronik_topic: str) -> None:
    for name, value in (("remote.storage.enable", "false"), ("local.retention.ms", "-2")):
        assert request_builders.alter_configs(client, TOPIC, chronik_topic, (name, SET, value)) is ErrorCode.NONE
    assert (
        request_builders.alter_configs(client, TOPIC, chronik_topic, ("remote.storage.enable", SET, "true"))
        is ErrorCode.INVALID_CONFIG
    )
