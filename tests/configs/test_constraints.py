"""The values that configs accept, for forms in which users edit them."""

from __future__ import annotations

import pytest

from chronik.configs.broker_key_lookup import iter_broker_keys
from chronik.configs.constraints import ConfigConstraints, describe_constraints
from chronik.configs.keys import TOPIC_KEYS, ConfigKey


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cleanup.policy", ConfigConstraints(("delete", "compact"))),
        ("columnar.table", ConfigConstraints(("delta", "iceberg", ""))),
        ("message.timestamp.type", ConfigConstraints(("CreateTime", "LogAppendTime"))),
        ("preallocate", ConfigConstraints(("true", "false"))),
        ("compression.zstd.level", ConfigConstraints(low=-131072, high=22)),
        ("columnar.history.retention.ms", ConfigConstraints(low=3_600_000, unit="ms")),
        ("max.message.bytes", ConfigConstraints(low=0, unit="bytes")),
        ("columnar.schema", ConfigConstraints()),
    ],
)
def test_constraints_are_derived_from_the_key(name: str, expected: ConfigConstraints) -> None:
    assert describe_constraints(TOPIC_KEYS[name]) == expected


def test_retention_accepts_no_limit() -> None:
    assert describe_constraints(TOPIC_KEYS["retention.ms"]).unlimited


@pytest.mark.parametrize("key", [*TOPIC_KEYS.values(), *iter_broker_keys()], ids=lambda key: key.name)
def test_constraints_agree_with_validator(key: ConfigKey) -> None:
    found = describe_constraints(key)
    assert [each for each in found.choices if key.check(each) is not None] == []
    limits = [each for each in (found.low, found.high) if each is not None] + [-1] * found.unlimited
    assert [each for each in limits if key.check(str(each)) is not None] == []
    if found.low is not None and not found.unlimited:
        assert key.check(str(found.low - 1)) is not None
    if found.high is not None:
        assert key.check(str(found.high + 1)) is not None
