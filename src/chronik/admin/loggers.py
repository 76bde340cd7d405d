"""Loggers of this node: their levels are configs that hold until the node ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from chronik import log_levels
from chronik.configs.checks import anything
from chronik.configs.keys import ConfigKey, ConfigType
from chronik.configs.resolver import ConfigEntry, ConfigSource
from chronik.protocol.errors import ErrorCode, KafkaError

LEVEL_DOC = "The level of a logger."


def refuse_other_nodes(node_id: int, name: str) -> None:
    """Raises INVALID_REQUEST: each node knows of its own loggers only."""
    if name != str(node_id):
        told = f"Unexpected broker id, expected {node_id} but received {name!r}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, told)


def describe_levels() -> Iterator[ConfigEntry]:
    for name, level in log_levels.log_levels().items():
        key = ConfigKey(name, ConfigType.UNKNOWN, None, LEVEL_DOC, anything)
        yield ConfigEntry(key, level, ConfigSource.DYNAMIC_BROKER_LOGGER, read_only=False)


def change_levels(wanted: Mapping[str, str], delete: Sequence[str], *, validate_only: bool) -> None:
    """Changes all or nothing. Raises KafkaError."""
    for name, level in wanted.items():
        _refuse_unknown(name)
        if level not in log_levels.LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(log_levels.LEVELS))}",
            )
    for name in delete:
        if name == log_levels.ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
        _refuse_unknown(name)
    if not validate_only:
        for name, level in wanted.items():
            log_levels.set_level(name, level)
        for name in delete:
            log_levels.inherit_level(name)


def _refuse_unknown(name: str) -> None:
    if not log_levels.knows(name):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
