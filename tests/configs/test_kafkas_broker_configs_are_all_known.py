"""Every broker config of Apache Kafka is known here as its own broker describes it: asked of both, side by side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronik.configs.keys import ConfigType
from chronik.configs.known import all_broker_keys
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from chronik.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from chronik.testing import Broker
from tests.pipeline.apache_kafka import SETTINGS, ApacheKafka
from tests.pipeline.jars import APACHE_KAFKA, skip_without
from tests.raw import RawClient

BROKER = 4
DEFAULT = 5

SET_UP = {*SETTINGS, "listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs", "broker.id"}
"""What Kafka is started with, or what follows from it."""

IN_OTHER_UNITS = {"log.retention.ms", "log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms"}
"""Kafka tells nothing where they are not set; here they are what hours or minutes make of them."""

OWN_DEFAULTS = {"group.initial.rebalance.delay.ms", "group.max.size", "max.connections", "replica.lag.time.max.ms"}
"""As docs/differences-from-kafka.md says, and why."""

FIXED_HERE = {"listeners", "listener.security.protocol.map"}
"""Kafka opens and closes ports while it runs."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    skip_without(APACHE_KAFKA)
    with ApacheKafka(tmp_path_factory.mktemp("apache-kafka")) as kafka:
        yield kafka


def described(bootstrap: str) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
    with RawClient(bootstrap) as client:
        (result,) = client.ask(DescribeConfigsRequest(resources=[resource]), 4, DescribeConfigsResponse).results
    assert result.error_code == ErrorCode.NONE
    return {config.name: config for config in result.configs}


def test_names_types_defaults_and_modes_are_kafkas(kafka: ApacheKafka, chronik_broker: Broker) -> None:
    theirs, ours = described(kafka.bootstrap), described(chronik_broker.bootstrap)
    assert len(theirs) > 300
    assert theirs.keys() <= ours.keys()
    compared = 0
    for name, their in theirs.items():
        our = ours[name]
        assert (our.config_type, our.is_sensitive) == (their.config_type, their.is_sensitive), name
        assert our.read_only == (their.read_only or name in FIXED_HERE), name
        is_default = their.config_source == our.config_source == DEFAULT
        if is_default and name not in SET_UP | IN_OTHER_UNITS | OWN_DEFAULTS:
            assert our.value == their.value, name
            compared += 1
    assert compared > 300


def test_what_may_be_changed_for_all_brokers_is_kafkas(kafka: ApacheKafka, chronik_broker: Broker) -> None:
    """Each value that is changed is set to itself, and only checked."""
    names = described(kafka.bootstrap).keys() - FIXED_HERE
    keys = [key for key in all_broker_keys() if key.name in names and key.type is not ConfigType.CLASS]
    assert len(keys) > 300
    with RawClient(kafka.bootstrap) as theirs, RawClient(chronik_broker.bootstrap) as ours:
        for key in keys:
            value = key.default or ("1" if key.type in (ConfigType.INT, ConfigType.LONG) else "")
            expected = answer(theirs, key.name, value)
            assert answer(ours, key.name, value) == expected, key.name


def answer(client: RawClient, name: str, value: str) -> tuple[int, str | None]:
    change = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
    (result,) = client.ask(request, 1, IncrementalAlterConfigsResponse).responses
    return result.error_code, result.error_message


@pytest.mark.parametrize("wrong", [("num.io.threads", "0"), ("num.io.threads", "many"), ("log.cleaner.threads", "-1")])
def test_wrong_values_are_refused_with_kafkas_code(
    kafka: ApacheKafka, chronik_broker: Broker, wrong: tuple[str, str]
) -> None:
    with RawClient(kafka.bootstrap) as theirs, RawClient(chronik_broker.bootstrap) as ours:
        assert answer(ours, *wrong)[0] == answer(theirs, *wrong)[0] == ErrorCode.INVALID_REQUEST
