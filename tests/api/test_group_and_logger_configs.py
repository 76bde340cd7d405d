"""Configs of groups, which are stored, and log levels of a node, which last until it stops, as in Kafka 4.3."""

from __future__ import annotations

import pytest

from chronik.configs.keys import LAG_BUDGET
from chronik.coordination import coordinator, host
from chronik.groups import offsets
from chronik.metadata.handlers.groups import GROUPS_WITH_CONFIGS_MAX
from chronik.metadata.stores import local_store
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
    DescribeConfigsResponse,
)
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.api import request_builders
from tests.api.request_builders import APPEND, DELETE, SET
from tests.api.test_configs import describe_configs, unique_group
from tests.raw import RawClient

BROKER_LOGGER, CLIENT_METRICS, GROUP = 8, 16, 32
DEFAULT, DYNAMIC_BROKER_LOGGER, DYNAMIC_GROUP = 5, 6, 8

KAFKA_DEFAULTS = {
    "consumer.session.timeout.ms": ("45000", "group.consumer.session.timeout.ms"),
    "consumer.heartbeat.interval.ms": ("5000", "group.consumer.heartbeat.interval.ms"),
    "consumer.assignment.interval.ms": ("1000", "group.consumer.assignment.interval.ms"),
    "share.session.timeout.ms": ("45000", "group.share.session.timeout.ms"),
    "share.heartbeat.interval.ms": ("5000", "group.share.heartbeat.interval.ms"),
    "share.assignment.interval.ms": ("1000", "group.share.assignment.interval.ms"),
    "share.record.lock.duration.ms": ("30000", "group.share.record.lock.duration.ms"),
    "share.delivery.count.limit": ("5", "group.share.delivery.count.limit"),
    "share.partition.max.record.locks": ("2000", "group.share.partition.max.record.locks"),
    "share.auto.offset.reset": ("latest", "share.auto.offset.reset"),
    "share.isolation.level": ("read_uncommitted", "share.isolation.level"),
    "share.renew.acknowledge.enable": ("true", "share.renew.acknowledge.enable"),
    "streams.session.timeout.ms": ("45000", "group.streams.session.timeout.ms"),
    "streams.heartbeat.interval.ms": ("5000", "group.streams.heartbeat.interval.ms"),
    "streams.assignment.interval.ms": ("1000", "group.streams.assignment.interval.ms"),
    "streams.num.standby.replicas": ("0", "group.streams.num.standby.replicas"),
    "streams.initial.rebalance.delay.ms": ("3000", "group.streams.initial.rebalance.delay.ms"),
}
"""Default values and synonyms of a group's configs, as Kafka 4.3.1 describes them."""


def described_code(client: RawClient, kind: int, name: str) -> ErrorCode:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    (result,) = client.request(DescribeConfigsRequest(resources=[resource]), 4, DescribeConfigsResponse).results
    return ErrorCode(result.error_code)


# Groups


def test_group_configs_match_kafkas_defaults(client: RawClient) -> None:
    configs = describe_configs(client, GROUP, unique_group())
    defaults = {name: (config.value, config.synonyms[0].name) for name, config in configs.items()}
    assert defaults == {**KAFKA_DEFAULTS, LAG_BUDGET: ("10000", LAG_BUDGET)}
    assert {config.config_source for config in configs.values()} == {DEFAULT}
    assert not any(config.read_only for config in configs.values())


def test_group_configs_survive_restart(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    with RawClient(broker.bootstrap) as client:
        changes = ("consumer.session.timeout.ms", SET, "46000"), ("share.isolation.level", SET, "read_committed")
        assert request_builders.alter_configs(client, GROUP, "g", *changes) is ErrorCode.NONE
        assert (
            request_builders.alter_configs(client, GROUP, "g", ("share.isolation.level", DELETE, None))
            is ErrorCode.NONE
        )
    broker.restart()
    with RawClient(broker.bootstrap) as client:
        configs = describe_configs(client, GROUP, "g")
        session = configs["consumer.session.timeout.ms"]
        assert (session.value, session.config_source) == ("46000", DYNAMIC_GROUP)
        assert [synonym.value for synonym in session.synonyms] == ["46000", "45000"]
        assert configs["share.isolation.level"].config_source == DEFAULT


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("consumer.session.timeout.ms", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("consumer.session.timeout.ms", SET, "60001"), ErrorCode.INVALID_CONFIG),
        (("consumer.session.timeout.ms", SET, "60000"), ErrorCode.NONE),
        (("consumer.session.timeout.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("consumer.heartbeat.interval.ms", SET, "50000"), ErrorCode.INVALID_CONFIG),
        (("consumer.heartbeat.interval.ms", SET, "15000"), ErrorCode.NONE),
        (("share.auto.offset.reset", SET, "by_duration:PT1H"), ErrorCode.NONE),
        (("share.auto.offset.reset", SET, "whenever"), ErrorCode.INVALID_CONFIG),
        (("share.isolation.level", APPEND, "x"), ErrorCode.INVALID_CONFIG),
        (("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("no.such.key", DELETE, None), ErrorCode.NONE),
    ],
)
def test_group_configs_are_validated(client: RawClient, change: tuple[str, int, str | None], code: ErrorCode) -> None:
    assert request_builders.alter_configs(client, GROUP, unique_group(), change) is code


def test_group_session_timeout_must_exceed_heartbeat_interval(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory(broker={"group.consumer.min.session.timeout.ms": 10_000})
    changes = ("consumer.heartbeat.interval.ms", SET, "12000"), ("consumer.session.timeout.ms", SET, "12000")
    with RawClient(broker.bootstrap) as client:
        assert request_builders.alter_configs(client, GROUP, "g", *changes) is ErrorCode.INVALID_CONFIG
        assert request_builders.alter_configs(client, GROUP, "g", changes[0]) is ErrorCode.NONE
        assert request_builders.alter_configs(client, GROUP, "g", changes[1]) is ErrorCode.INVALID_CONFIG
        assert request_builders.alter_configs(
            client, GROUP, "g", changes[1], ("consumer.heartbeat.interval.ms", DELETE, None)
        ) is (ErrorCode.NONE)


def test_empty_group_name_has_no_configs(client: RawClient) -> None:
    assert (
        request_builders.alter_configs(client, GROUP, "", ("share.isolation.level", DELETE, None))
        is ErrorCode.INVALID_REQUEST
    )
    assert described_code(client, GROUP, "") is ErrorCode.INVALID_REQUEST
    assert described_code(client, CLIENT_METRICS, "x") is ErrorCode.INVALID_REQUEST


def test_number_of_groups_with_configs_is_limited(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory(flush="os")
    change = ("share.isolation.level", SET, "read_committed")
    with RawClient(broker.bootstrap) as client:
        for number in range(GROUPS_WITH_CONFIGS_MAX):
            assert request_builders.alter_configs(client, GROUP, f"g{number}", change) is ErrorCode.NONE
        assert request_builders.alter_configs(client, GROUP, "one more", change) is ErrorCode.INVALID_CONFIG
        assert request_builders.alter_configs(client, GROUP, "g7", change) is ErrorCode.NONE
        assert (
            request_builders.alter_configs(client, GROUP, "g7", ("share.isolation.level", DELETE, None))
            is ErrorCode.NONE
        )
        assert request_builders.alter_configs(client, GROUP, "one more", change) is ErrorCode.NONE


# Loggers


@pytest.fixture
def own(chronik_broker_factory: BrokerFactory) -> Broker:
    """Return a broker whose log only this test reads."""
    return chronik_broker_factory(log_level="info")


def levels(client: RawClient) -> dict[str, str | None]:
    configs = describe_configs(client, BROKER_LOGGER, "1")
    assert {config.config_source for config in configs.values()} == {DYNAMIC_BROKER_LOGGER}
    assert not any(config.read_only or config.is_sensitive for config in configs.values())
    return {name: config.value for name, config in configs.items()}


def test_altered_logger_levels_apply_until_restart(own: Broker) -> None:
    with RawClient(own.bootstrap) as client:
        before = levels(client)
        assert {"root", "chronik.api", "chronik.server", "chronik.broker"} <= before.keys()
        assert before["root"] == before["chronik.broker"] == "INFO"
        assert request_builders.alter_configs(client, BROKER_LOGGER, "1", ("root", SET, "WARN")) is ErrorCode.NONE
        assert levels(client)["chronik.broker"] == "WARN"
        assert (
            request_builders.alter_configs(client, BROKER_LOGGER, "1", ("chronik.broker", SET, "TRACE"))
            is ErrorCode.NONE
        )
        assert levels(client)["chronik.broker"] == "TRACE"
        assert levels(client)["chronik.server"] == "WARN"
        assert (
            request_builders.alter_configs(client, BROKER_LOGGER, "1", ("chronik.broker", DELETE, None))
            is ErrorCode.NONE
        )
        assert levels(client)["chronik.broker"] == "WARN"
    own.restart()
    with RawClient(own.bootstrap) as client:
        assert levels(client)["root"] == "INFO"


def test_connections_are_logged_only_at_debug_level(own: Broker) -> None:
    with RawClient(own.bootstrap) as client:
        for level in ("INFO", "DEBUG"):
            assert (
                request_builders.alter_configs(client, BROKER_LOGGER, "1", ("chronik.server", SET, level))
                is ErrorCode.NONE
            )
            with RawClient(own.bootstrap) as other:
                assert request_builders.describe_topic(other, level, create=False).error_code
            debug_lines = [line for line in own.log.splitlines() if " DEBUG " in line and "connection" in line]
            assert bool(debug_lines) is (level == "DEBUG")


@pytest.mark.parametrize(
    ("broker", "change", "code"),
    [
        ("1", ("root", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ("1", ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        ("1", ("root", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        ("1", ("kafka.server", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        ("1", ("kafka.server", DELETE, None), ErrorCode.INVALID_CONFIG),
        ("2", ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
        ("", ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
        ("one", ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_logger_levels_are_rejected_as_in_kafka(
    client: RawClient, broker: str, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    before = levels(client)
    assert request_builders.alter_configs(client, BROKER_LOGGER, broker, change) is code
    assert levels(client) == before
    if broker != "1":
        assert described_code(client, BROKER_LOGGER, broker) is code


def test_alter_configs_rejects_broker_loggers(client: RawClient) -> None:
    """AlterConfigs does not support loggers in Kafka either."""
    resource = AlterConfigsResource(
        resource_type=BROKER_LOGGER, resource_name="1", configs=[AlterableConfig(name="root", value="INFO")]
    )
    (answer,) = client.request(AlterConfigsRequest(resources=[resource]), 2, AlterConfigsResponse).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_logger_names_are_stable() -> None:
    """Operators have configured levels by these names."""
    assert local_store.log.name == "chronik.metadata.local_store"
    assert coordinator.log.name == offsets.log.name == "chronik.groups.coordinator"
    assert host.log.name == "chronik.groups.hosting"
