"""Configs and modes of subjects, contexts and the whole registry, and how they are inherited.

The rules are those of Confluent's registry: a subject without a config has the one of its context, or else that of the
global context. A subject with a config inherits only some fields, and these only from the default context.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from chronik.metadata.schemas import DEFAULT_SETTINGS, GLOBAL_SETTINGS, SchemaTable, join_subject, split_subject
from chronik.registry.entities import Config, RegistryConfigChange
from chronik.registry.errors import InvalidCompatibilityLevelError, InvalidModeError
from chronik.registry.properties import canonicalize_metadata, canonicalize_rule_set, check_rule_set

CONFIGS_CACHED: Final = 64
"""The number of decoded configs that are kept. Most subjects share a few configs."""


class CompatibilityLevel(StrEnum):
    """The rule by which new schemas of a subject must be compatible with earlier ones."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Whether a new schema is compared with all earlier versions, not only with the latest."""
        return self.value.endswith("_TRANSITIVE")


class RegistryMode(StrEnum):
    """Which changes of a subject are allowed."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    """As READONLY. Set globally, it overrides the modes of all subjects and contexts."""
    IMPORT = "IMPORT"
    """Schemas are registered with ids and versions of another registry, without compatibility checks."""

    @property
    def is_read_only(self) -> bool:
        return self in (RegistryMode.READONLY, RegistryMode.READONLY_OVERRIDE)


DEFAULT_LEVEL: Final = CompatibilityLevel.BACKWARD
DEFAULT_MODE: Final = RegistryMode.READWRITE
COMPATIBILITY_POLICY: Final = "STRICT"
"""The only supported compatibility policy. Confluent's registry has others for JSON Schema and for logical types."""


# --- configs ---


def find_config(table: SchemaTable, name: str) -> Config | None:
    """Return the config that a subject or context itself has, as it is stored, or None."""
    settings = table.settings.get(name)
    return _decode_config(settings.config) if settings is not None and settings.config else None


@lru_cache(maxsize=CONFIGS_CACHED)
def _decode_config(text: str) -> Config:
    return msgspec.json.decode(text, type=Config)


def get_own_config(table: SchemaTable, name: str) -> Config | None:
    """Return the config of a subject or context with its compatibility level, or None if it has no config.

    The default context and the global context always have a config.
    """
    found = find_config(table, name)
    if found is None and name not in (DEFAULT_SETTINGS, GLOBAL_SETTINGS):
        return None
    return _with_level(found or Config())


def get_effective_config(table: SchemaTable, name: str) -> Config:
    """Return the config that applies to a subject or context."""
    own = find_config(table, name)
    if own is not None:
        return _with_level(own if name == DEFAULT_SETTINGS else _inherit(own, find_config(table, DEFAULT_SETTINGS)))
    for inherited in _list_inherited(name):
        found = find_config(table, inherited)
        if found is not None:
            return _with_level(found)
    return _with_level(Config())


def _list_inherited(name: str) -> tuple[str, str]:
    """Return the names of the settings that apply to a subject or context without its own."""
    return join_subject(split_subject(name)[0], ""), GLOBAL_SETTINGS


def _with_level(config: Config) -> Config:
    return config if config.compatibility_level else replace(config, compatibility_level=str(DEFAULT_LEVEL))


def _inherit(config: Config, inherited: Config | None) -> Config:
    if inherited is None:
        return config
    fields = ("normalize", "validate_fields", "validate_rules", "compatibility_policy", "compatibility_group")
    absent: dict[str, Any] = {field: getattr(inherited, field) for field in fields if getattr(config, field) is None}
    return replace(config, **absent)


def get_level(config: Config) -> CompatibilityLevel:
    """Return the compatibility level of an effective config."""
    return CompatibilityLevel(config.compatibility_level or DEFAULT_LEVEL)


def has_defaults_or_overrides(config: Config) -> bool:
    """Return whether a config adds metadata or rules to schemas."""
    return any(
        each is not None
        for each in (
            config.default_metadata,
            config.override_metadata,
            config.default_rule_set,
            config.override_rule_set,
        )
    )


def check_config_change(change: RegistryConfigChange) -> RegistryConfigChange:
    """Return a config change with canonical values.

    Raises:
        InvalidCompatibilityLevelError: The compatibility level is unknown, or the policy is not supported.
        InvalidRuleSetError: A rule set is invalid.
    """
    values: dict[str, Any] = {}
    if isinstance(change.compatibility_level, str):
        values["compatibility_level"] = str(_parse_level(change.compatibility_level))
    if isinstance(change.compatibility_policy, str):
        if change.compatibility_policy.upper() != COMPATIBILITY_POLICY:
            raise InvalidCompatibilityLevelError(
                f"Invalid compatibility policy. The only supported value is {COMPATIBILITY_POLICY}"
            )
        values["compatibility_policy"] = COMPATIBILITY_POLICY
    for field in ("default_rule_set", "override_rule_set"):
        rule_set = getattr(change, field)
        if rule_set is not None and rule_set is not UNSET:
            check_rule_set(rule_set)
            values[field] = canonicalize_rule_set(rule_set)
    for field in ("default_metadata", "override_metadata"):
        metadata = getattr(change, field)
        if metadata is not None and metadata is not UNSET:
            values[field] = canonicalize_metadata(metadata)
    return replace(change, **values)


def _parse_level(name: str) -> CompatibilityLevel:
    try:
        return CompatibilityLevel(name.upper())
    except ValueError:
        raise InvalidCompatibilityLevelError from None


def apply_config_change(config: Config | None, change: RegistryConfigChange) -> Config:
    """Return a config with a change applied."""
    given = {field: getattr(change, field) for field in change.__struct_fields__}
    return replace(config or Config(), **{field: value for field, value in given.items() if value is not UNSET})


# --- modes ---


def parse_mode(name: str) -> RegistryMode:
    """Return the mode with a name.

    Raises:
        InvalidModeError: The mode is unknown or not supported.
    """
    try:
        return RegistryMode(name.upper())
    except ValueError:
        raise InvalidModeError from None


def get_own_mode(table: SchemaTable, name: str) -> RegistryMode | None:
    """Return the mode of a subject or context, or None if it has none. The default and the global context have one."""
    settings = table.settings.get(name)
    if settings is not None and settings.mode:
        return RegistryMode(settings.mode)
    return DEFAULT_MODE if name in (DEFAULT_SETTINGS, GLOBAL_SETTINGS) else None


def get_effective_mode(table: SchemaTable, name: str) -> RegistryMode:
    """Return the mode that applies to a subject or context."""
    of_registry = table.effective_mode(DEFAULT_SETTINGS)
    if of_registry == RegistryMode.READONLY_OVERRIDE:
        return RegistryMode.READONLY_OVERRIDE
    return RegistryMode(table.effective_mode(name) or DEFAULT_MODE)
