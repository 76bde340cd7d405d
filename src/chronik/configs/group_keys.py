"""The group configs of Kafka 4.3. They apply to Kafka's newer group types, so here they are accepted but ignored.

A broker config supplies the default of a group config; some broker configs also define its minimum and maximum.
"""

from __future__ import annotations

from typing import Final

from chronik.configs.checks import INT_MAX, Check, boolean, choice, whole
from chronik.configs.kept_keys import KEPT_KEYS, NO_EFFECT
from chronik.configs.keys import ConfigKey, ConfigType

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

KINDS: Final = ("consumer", "share", "streams")
"""The group types of Kafka that have configs."""


def _reset(value: str) -> str | None:
    named = choice("latest", "earliest")
    return None if value.startswith("by_duration:") else named(value) and f"{named(value)}, by_duration:…"


def _number(name: str, low: int, high: int) -> ConfigKey:
    synonym = f"group.{name}"
    return ConfigKey(name, ConfigType.INT, KEPT_KEYS[synonym].default, NO_EFFECT, whole(low, high), synonym, kept=True)


def _other(name: str, kind: ConfigType, default: str, check: Check) -> ConfigKey:
    return ConfigKey(name, kind, default, NO_EFFECT, check, kept=True)


GROUP_KEYS: Final = {
    key.name: key
    for key in (
        *(_number(name, *bounds) for name, bounds in _NUMBERS.items()),
        _other("share.auto.offset.reset", ConfigType.STRING, "latest", _reset),
        _other(
            "share.isolation.level",
            ConfigType.STRING,
            "read_uncommitted",
            choice("read_committed", "read_uncommitted"),
        ),
        _other("share.renew.acknowledge.enable", ConfigType.BOOLEAN, "true", boolean),
    )
}
"""The group configs by name."""


def bounds_of(key: ConfigKey) -> tuple[ConfigKey | None, ConfigKey | None]:
    """Return the broker configs that define the minimum and maximum of a group config, or None for each."""
    kind, _, rest = key.name.partition(".")
    return KEPT_KEYS.get(f"group.{kind}.min.{rest}"), KEPT_KEYS.get(f"group.{kind}.max.{rest}")
