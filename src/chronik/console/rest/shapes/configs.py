"""Configs of topics and brokers."""

from __future__ import annotations

import msgspec

from chronik.console.rest.shapes.common import DryRun


class Config(msgspec.Struct):
    name: str
    value: str | None
    """null where it is a secret."""
    source: str
    """topic, broker, cluster, file or default."""
    default: str | None
    read_only: bool
    sensitive: bool
    documentation: str | None


class Configs(msgspec.Struct):
    items: list[Config]


class ConfigChanges(DryRun, kw_only=True):
    set: dict[str, str] = {}
    delete: list[str] = []
    """Those that go back to their defaults."""
