"""Broker configs of Kafka 4.3 that Chronik ignores: accepted in the config file and by AlterConfigs, and described.

Scripts and tools set them, and would fail if the broker rejected them. The module is imported on first use, so that
most nodes start without it.
"""

from __future__ import annotations

from typing import Final

from chronik.configs.ignored_keys_table import EMPTY, LONG_DEFAULT, LONG_DEFAULTS, NONE, TABLE
from chronik.configs.keys import ConfigKey, ConfigType, UpdateMode
from chronik.configs.validators import (
    INT_MAX,
    LONG_MAX,
    Validator,
    accept_any_value,
    integer_in_range,
    list_of,
    number_in_range,
    one_of,
    validate_boolean,
)

IGNORED_KEY_DOC: Final = "Accepted for compatibility with Kafka; has no effect."
"""The documentation of an ignored config."""

SCOPES: Final = {
    "fixed": UpdateMode.READ_ONLY,
    "internal": UpdateMode.READ_ONLY,
    "broker": UpdateMode.PER_BROKER,
    "listener": UpdateMode.PER_BROKER,
    "cluster": UpdateMode.CLUSTER_WIDE,
}

RANGES: Final = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-INT_MAX - 1, INT_MAX),
    ConfigType.LONG: (-LONG_MAX - 1, LONG_MAX),
}


def _check(kind: ConfigType, legal: str) -> Validator:
    if kind is ConfigType.BOOLEAN:
        return validate_boolean
    if kind in RANGES:
        return integer_in_range(*_range(legal, *RANGES[kind]))
    if kind is ConfigType.DOUBLE:
        low, _, high = legal.partition("..")
        return number_in_range(float(low), float(high)) if high else number_in_range(float("-inf"), float("inf"))
    if legal == NONE:
        return accept_any_value
    names = legal.split("|")
    return list_of(*names) if kind is ConfigType.LIST else one_of(*names)


def _range(legal: str, lowest: int, highest: int) -> tuple[int, int]:
    low, _, high = legal.partition("..")
    return lowest if low == NONE else int(low), int(high or highest)


def _key(line: str) -> ConfigKey:
    name, kind_name, scope, legal, default = line.split()
    kind = ConfigType[kind_name.upper()]
    text = {NONE: None, EMPTY: "", LONG_DEFAULT: LONG_DEFAULTS.get(name)}.get(default, default)
    return ConfigKey(
        name,
        kind,
        text,
        IGNORED_KEY_DOC,
        _check(kind, legal),
        scope=SCOPES[scope],
        kept=True,
        internal=scope == "internal",
        per_listener=scope == "listener",
    )


def _lines() -> list[str]:
    return [line for line in TABLE.splitlines() if line and not line.startswith("#")]


IGNORED_KEYS: Final = {key.name: key for key in map(_key, _lines())}
