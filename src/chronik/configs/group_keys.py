"""The group configs of Kafka 4.3 and Chronik.

Those of Kafka apply to its newer group types, so here they are accepted but ignored.

A broker config supplies the default of a group config; some broker configs also define its minimum and maximum.
"""

from __future__ import annotations

from typing import Final

from chronik.configs.ignored_keys import IGNORED_KEY_DOC, IGNORED_KEYS
from chronik.configs.keys import LAG_BUDGET, ConfigKey, ConfigType, define_long_config
from chronik.configs.validators import INT_MAX, Validator, integer_in_range, one_of, validate_boolean

_NUMBERS: Final = {
    "consumer.session.timeout.ms": (1, INT_MAX),
    "consumer.heartbeat.interval.ms": (1, INT_MAX),
    "consumer.assignment.interval.ms": (0, INT_MAX),
    "share.session.timeout.ms": (1, INT_MAX),
    "share.heartbeat.interval.ms": (1, INT_MAX),
    "share.assignment.interval.ms": (0, INT_MAX),
    "share.record.lock.duration.ms": (1000, INT_MAX),
    "share.delivery.count.limit": (2, INT_MAX),
    "share.partition.max.record.locks": (100, INT_MAX),
    "streams.session.timeout.ms": (1, INT_MAX),
    "streams.heartbeat.interval.ms": (1, INT_MAX),
    "streams.assignment.interval.ms": (0, INT_MAX),
    "streams.num.standby.replicas": (0, INT_MAX),
    "streams.initial.rebalance.delay.ms": (0, INT_MAX),
}

GROUP_TYPES: Final = ("consumer", "share", "streams")
"""Kafka's group types that have their own group configs."""


def _validate_offset_reset(value: str) -> str | None:
    named = one_of("latest", "earliest")
    return None if value.startswith("by_duration:") else named(value) and f"{named(value)}, by_duration:…"


def _create_ignored_int_key(name: str, low: int, high: int) -> ConfigKey:
    synonym = f"group.{name}"
    return ConfigKey(
        name,
        ConfigType.INT,
        IGNORED_KEYS[synonym].default,
        IGNORED_KEY_DOC,
        integer_in_range(low, high),
        synonym,
        kept=True,
    )


def _create_ignored_key(name: str, kind: ConfigType, default: str, check: Validator) -> ConfigKey:
    return ConfigKey(name, kind, default, IGNORED_KEY_DOC, check, kept=True)


GROUP_KEYS: Final = {
    key.name: key
    for key in (
        *(_create_ignored_int_key(name, *bounds) for name, bounds in _NUMBERS.items()),
        _create_ignored_key("share.auto.offset.reset", ConfigType.STRING, "latest", _validate_offset_reset),
        _create_ignored_key(
            "share.isolation.level",
            ConfigType.STRING,
            "read_uncommitted",
            one_of("read_committed", "read_uncommitted"),
        ),
        _create_ignored_key("share.renew.acknowledge.enable", ConfigType.BOOLEAN, "true", validate_boolean),
        define_long_config(
            LAG_BUDGET,
            10_000,
            "The lag in records above which a growing lag of the group is a problem.",
            1,
            synonym=LAG_BUDGET,
        ),
    )
}
"""All group configs by config name, such as `consumer.session.timeout.ms`."""


def find_group_config_bounds(key: ConfigKey) -> tuple[ConfigKey | None, ConfigKey | None]:
    """Return the broker configs that limit a group config: its minimum and its maximum, each None if there is none."""
    kind, _, rest = key.name.partition(".")
    return IGNORED_KEYS.get(f"group.{kind}.min.{rest}"), IGNORED_KEYS.get(f"group.{kind}.max.{rest}")
