"""Comparison of Chronik's broker configs with those of a real Apache Kafka broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronik.configs.broker_key_lookup import iter_broker_keys
from chronik.configs.keys import ConfigType
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from chronik.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from chronik.testing import Broker
from tests.pipeline.apache_kafka import SETTINGS, ApacheKafka
from tests.pipeline.jars import APACHE_KAFKA, skip_without_jars
from tests.raw import RawClient

BROKER = 4
DEFAULT = 5

SET_UP = {*SETTINGS, "listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs", "broker.id"}
"""Configs that the test sets on Kafka, or that follow from them."""

IN_OTHER_UNITS = {"log.retention.ms", "log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms"}
"""Configs that Kafka does not describe unless they are set; Chronik derives them from hours or minutes."""

OWN_DEFAULTS = {"group.initial.rebalance.delay.ms", "group.max.size", "max.connections", "replica.lag.time.max.ms"}
"""Configs with different defaults (see docs/reference/differences-from-kafka.md)."""

FIXED_HERE = {"listeners", "listener.security.protocol.map"}
"""Configs that Kafka can change dynamically and Chronik cannot."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    skip_without_jars(APACHE_KAFKA)
    with ApacheKafka(tmp_path_factory.mktemp("apache-kafka")) as kafka:
        yield kafka


def described(bootstrap: str) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
    with RawClient(bootstrap) as client:
        (result,) = client.request(DescribeConfigsRequest(resources=[resource]), 4, DescribeConfigsResponse).results
    assert result.error_code == ErrorCode.NONE
    return {config.name: config for config in result.configs}


def test_broker_config_names_types_and_defaults_match_kafka(kafka: ApacheKafka, chronik_broker: Broker) -> None:
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


def test_dynamically_changeable_configs_match_kafka(kafka: ApacheKafka, chronik_broker: Broker) -> None:
    """Each config is set to its own value with validate_only."""
    names = described(kafka.bootstrap).keys() - FIXED_HERE
    keys = [key for key in iter_broker_keys() if key.name in names and key.type is not ConfigType.CLASS]
    assert len(keys) > 300
    with RawClient(kafka.bootstrap) as theirs, RawClient(chronik_broker.bootstrap) as ours:
        for key in keys:
            value = key.default or ("1" if key.type in (ConfigType.INT, ConfigType.LONG) else "")
            expected = answer(theirs, key.name, value)
            assert answer(ours, key.name, value) == expected, key.name


def answer(client: RawClient, name: str, value: str) -> tuple[int, str | None]:
    change = IncrementalAlterableConfig(name=name, config_operation=0, value=value)
    resource = IncrementalAlterConfigsResource(resource_type=BROKER, resource_name="", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
    (result,) = client.request(request, 1, IncrementalAlterConfigsResponse).responses
    return result.error_code, result.error_message


@pytest.mark.parametrize("wrong", [("num.io.threads", "0"), ("num.io.threads", "many"), ("log.cleaner.threads", "-1")])
def test_invalid_value_is_rejected_with_error_code_of_kafka(
    kafka: ApacheKafka, chronik_broker: Broker, wrong: tuple[str, str]
) -> None:
    with RawClient(kafka.bootstrap) as theirs, RawClient(chronik_broker.bootstrap) as ours:
        assert answer(ours, *wrong)[0] == answer(theirs, *wrong)[0] == ErrorCode.INVALID_REQUEST
