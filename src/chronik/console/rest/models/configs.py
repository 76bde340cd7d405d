"""Models of topic and broker configs."""

from __future__ import annotations

import msgspec

from chronik.console.rest.models.common import DryRun


class Config(msgspec.Struct):
    """A config and its value."""

    name: str
    value: str | None
    """null if the value is sensitive."""
    source: str
    """topic, broker, cluster, file or default."""
    default: str | None
    read_only: bool
    sensitive: bool
    documentation: str | None


class Configs(msgspec.Struct):
    """The configs of a resource."""

    items: list[Config]


class ConfigChanges(DryRun, kw_only=True):
    """Changes to the configs of a resource."""

    set: dict[str, str] = {}
    delete: list[str] = []
    """Configs to reset to their defaults."""
