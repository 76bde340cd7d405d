from __future__ import annotations

import pytest

from chronik.errors import ConfigError
from chronik.groups.config import GroupConfig


def test_config_is_read_from_kafka_config_names() -> None:
    configs = {
        "group.min.session.timeout.ms": "10",
        "group.max.size": "5",
        "offsets.retention.minutes": "2",
        "num.partitions": "3",
    }
    config = GroupConfig.from_broker_configs(configs)
    assert (config.min_session_timeout_ms, config.max_size, config.offsets_retention_ms) == (10, 5, 120_000)
    assert GroupConfig.from_broker_configs({}) == GroupConfig()


@pytest.mark.parametrize(
    "configs",
    [
        {"group.max.size": "0"},
        {"group.max.size": "many"},
        {"group.initial.rebalance.delay.ms": "-1"},
        {"group.min.session.timeout.ms": "2000000"},
    ],
)
def test_invalid_config_is_rejected_with_its_name(configs: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(configs))):
        GroupConfig.from_broker_configs(configs)
