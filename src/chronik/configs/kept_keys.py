"""Broker configs of Kafka 4.3 that Chronik ignores: accepted in the config file and by AlterConfigs, and described.

Scripts and tools set them, and would fail if the broker rejected them. The module is imported on first use, so that
most nodes start without it.
"""

from __future__ import annotations

from typing import Final

from chronik.configs.checks import INT_MAX, LONG_MAX, Check, anything, boolean, choice, choices, number, whole
from chronik.configs.kept_table import BELOW, EMPTY, LONG_DEFAULTS, NONE, TABLE
from chronik.configs.keys import ConfigKey, ConfigType, Scope

NO_EFFECT: Final = "Accepted for compatibility with Kafka; has no effect."
"""The documentation of an ignored config."""

SCOPES: Final = {
    "fixed": Scope.READ_ONLY,
    "internal": Scope.READ_ONLY,
    "broker": Scope.PER_BROKER,
    "listener": Scope.PER_BROKER,
    "cluster": Scope.CLUSTER_WIDE,
}

RANGES: Final = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-INT_MAX - 1, INT_MAX),
    ConfigType.LONG: (-LONG_MAX - 1, LONG_MAX),
}


def _check(kind: ConfigType, legal: str) -> Check:
    if kind is ConfigType.BOOLEAN:
        return boolean
    if kind in RANGES:
        return whole(*_range(legal, *RANGES[kind]))
    if kind is ConfigType.DOUBLE:
        low, _, high = legal.partition("..")
        return number(float(low), float(high)) if high else number(float("-inf"), float("inf"))
    if legal == NONE:
        return anything
    names = legal.split("|")
    return choices(*names) if kind is ConfigType.LIST else choice(*names)


def _range(legal: str, lowest: int, highest: int) -> tuple[int, int]:
    low, _, high = legal.partition("..")
    return lowest if low == NONE else int(low), int(high or highest)


def _key(line: str) -> ConfigKey:
    name, kind_name, scope, legal, default = line.split()
    kind = ConfigType[kind_name.upper()]
    text = {NONE: None, EMPTY: "", BELOW: LONG_DEFAULTS.get(name)}.get(default, default)
    return ConfigKey(
        name,
        kind,
        text,
        NO_EFFECT,
        _check(kind, legal),
        scope=SCOPES[scope],
        kept=True,
        internal=scope == "internal",
        per_listener=scope == "listener",
    )


def _lines() -> list[str]:
    return [line for line in TABLE.splitlines() if line and not line.startswith("#")]


KEPT_KEYS: Final = {key.name: key for key in map(_key, _lines())}
