"""The values that a config accepts, for forms in which users edit it: choices, range and unit."""

from __future__ import annotations

from typing import Final

import msgspec

from chronik.configs.keys import ConfigKey, ConfigType
from chronik.configs.validators import INT_MAX, LONG_MAX, ChoiceList, Choices, IntegerRange

UNITS_BY_SUFFIX: Final = {"ms": "ms", "seconds": "s", "minutes": "min", "hours": "h", "bytes": "bytes"}
"""Units of numeric configs by the last part of their names."""

NUMERIC_TYPES: Final = frozenset({ConfigType.INT, ConfigType.SHORT, ConfigType.LONG})


class ConfigConstraints(msgspec.Struct, frozen=True):
    """The values that a config accepts."""

    choices: tuple[str, ...] = ()
    """The allowed values, or elements of a list; empty if they are not enumerated."""
    low: int | None = None
    """The smallest allowed number; -1 may also be allowed, see `unlimited`."""
    high: int | None = None
    """The largest allowed number; None if only the type limits it."""
    unlimited: bool = False
    """Whether -1 stands for no limit."""
    unit: str | None = None


def describe_constraints(key: ConfigKey) -> ConfigConstraints:
    """Return the values that a config accepts, derived from its validator, type and name."""
    check = key.check
    unit = UNITS_BY_SUFFIX.get(key.name.rpartition(".")[2]) if key.type in NUMERIC_TYPES else None
    if isinstance(check, Choices):
        return ConfigConstraints((*check.choices, *([""] * check.may_be_empty)))
    if key.type is ConfigType.BOOLEAN:
        return ConfigConstraints(("true", "false"))
    if isinstance(check, ChoiceList):
        return ConfigConstraints(check.choices)
    if isinstance(check, IntegerRange):
        high = None if check.high in (INT_MAX, LONG_MAX) else check.high
        return ConfigConstraints(low=check.low, high=high, unlimited=check.unlimited or check.low == -1, unit=unit)
    return ConfigConstraints(unit=unit)
