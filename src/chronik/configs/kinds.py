"""What kinds of configuration keys there are."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec

from chronik.configs.checks import INT_MAX, LONG_MAX, Check, anything, boolean, whole


class ConfigType(IntEnum):
    """As DescribeConfigs names them."""

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


class Scope(IntEnum):
    """Where a broker key may be changed while the node runs."""

    READ_ONLY = 0
    PER_BROKER = 1
    """Of one broker only."""
    CLUSTER_WIDE = 2
    """Of one broker, or of all."""


class Fallback(NamedTuple):
    """The same in other units: `unit` of the key that falls back make one of this."""

    name: str
    unit: int


class ConfigKey(msgspec.Struct, frozen=True):
    name: str
    type: ConfigType
    default: str | None
    doc: str
    check: Check
    synonym: str | None = None
    """For a topic key: the broker key that gives its default."""
    scope: Scope = Scope.READ_ONLY
    fallbacks: tuple[Fallback, ...] = ()
    """Broker keys that give its default, where it has none of its own, nearest first."""
    kept: bool = False
    """Known for Kafka's sake: stored and described, and without effect."""
    internal: bool = False
    """Described only where it is set."""
    per_listener: bool = False
    """Changed only with the prefix of a listener, `listener.name.NAME.`."""
    secret: bool = False

    @property
    def sensitive(self) -> bool:
        """Whether its value is never shown."""
        return self.secret or self.type is ConfigType.PASSWORD


def int_(name: str, default: int, doc: str, low: int = 0, high: int = INT_MAX, **more: object) -> ConfigKey:
    return ConfigKey(name, ConfigType.INT, str(default), doc, whole(low, high), **more)  # type: ignore[arg-type]


def long(name: str, default: int, doc: str, low: int = 0, high: int = LONG_MAX, **more: object) -> ConfigKey:
    return ConfigKey(name, ConfigType.LONG, str(default), doc, whole(low, high), **more)  # type: ignore[arg-type]


def flag(name: str, default: bool, doc: str, **more: object) -> ConfigKey:
    shown = "true" if default else "false"
    return ConfigKey(name, ConfigType.BOOLEAN, shown, doc, boolean, **more)  # type: ignore[arg-type]


def text(name: str, default: str | None, doc: str, check: Check = anything, **more: object) -> ConfigKey:
    return ConfigKey(name, ConfigType.STRING, default, doc, check, **more)  # type: ignore[arg-type]


def list_(name: str, default: str, doc: str, check: Check = anything, **more: object) -> ConfigKey:
    return ConfigKey(name, ConfigType.LIST, default, doc, check, **more)  # type: ignore[arg-type]
