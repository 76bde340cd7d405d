"""Types of configuration keys."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec

from chronik.configs.validators import (
    INT_MAX,
    LONG_MAX,
    Validator,
    accept_any_value,
    integer_in_range,
    validate_boolean,
)


class ConfigType(IntEnum):
    """The type of a config value, with the numbers of DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(IntEnum):
    """The dynamic update mode of a broker config."""

    READ_ONLY = 0
    """Changed only by a restart."""
    PER_BROKER = 1
    """Changed dynamically for a single broker only."""
    CLUSTER_WIDE = 2
    """Changed dynamically for a single broker or for all brokers."""


class UnitFallback(NamedTuple):
    """A config with the same meaning in another unit.

    Its value times `unit` is the value of the key that falls back.
    """

    name: str
    unit: int


class ConfigKey(msgspec.Struct, frozen=True):
    """A configuration key with its type, default and validator."""

    name: str
    type: ConfigType
    default: str | None
    doc: str
    check: Validator
    synonym: str | None = None
    """For a topic key: the broker key that supplies its default."""
    scope: UpdateMode = UpdateMode.READ_ONLY
    fallbacks: tuple[UnitFallback, ...] = ()
    """Broker keys that supply the default if the key has none of its own, in order of precedence."""
    kept: bool = False
    """Whether the key is accepted and described, but has no effect."""
    internal: bool = False
    """Whether the key is described only if it is set."""
    per_listener: bool = False
    """Whether the key can be changed only with a listener prefix, `listener.name.NAME.`."""
    secret: bool = False

    @property
    def is_sensitive(self) -> bool:
        """Return whether the value is never returned to clients."""
        return self.secret or self.type is ConfigType.PASSWORD


def int_key(name: str, default: int, doc: str, low: int = 0, high: int = INT_MAX, **more: object) -> ConfigKey:
    """Return a key with an INT value."""
    return ConfigKey(name, ConfigType.INT, str(default), doc, integer_in_range(low, high), **more)  # type: ignore[arg-type]


def long_key(name: str, default: int, doc: str, low: int = 0, high: int = LONG_MAX, **more: object) -> ConfigKey:
    """Return a key with a LONG value."""
    return ConfigKey(name, ConfigType.LONG, str(default), doc, integer_in_range(low, high), **more)  # type: ignore[arg-type]


def boolean_key(name: str, default: bool, doc: str, **more: object) -> ConfigKey:
    """Return a key with a BOOLEAN value."""
    default_text = "true" if default else "false"
    return ConfigKey(name, ConfigType.BOOLEAN, default_text, doc, validate_boolean, **more)  # type: ignore[arg-type]


def string_key(
    name: str, default: str | None, doc: str, check: Validator = accept_any_value, **more: object
) -> ConfigKey:
    """Return a key with a STRING value."""
    return ConfigKey(name, ConfigType.STRING, default, doc, check, **more)  # type: ignore[arg-type]


def list_key(name: str, default: str, doc: str, check: Validator = accept_any_value, **more: object) -> ConfigKey:
    """Return a key with a LIST value."""
    return ConfigKey(name, ConfigType.LIST, default, doc, check, **more)  # type: ignore[arg-type]
