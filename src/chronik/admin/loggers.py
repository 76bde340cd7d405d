"""Log levels of this node as configs. Changes last until the node stops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from chronik import log_levels
from chronik.configs.keys import ConfigKey, ConfigType
from chronik.configs.resolver import ConfigEntry, ConfigSource
from chronik.configs.validators import accept_any_value
from chronik.protocol.errors import ErrorCode, KafkaError

LEVEL_DOC = "The level of a logger."


def check_node_id(node_id: int, name: str) -> None:
    """Raise INVALID_REQUEST unless the broker id is this node's: a node knows only its own loggers."""
    if name != str(node_id):
        message = f"Unexpected broker id, expected {node_id} but received {name!r}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def describe_log_levels() -> Iterator[ConfigEntry]:
    """Yield the levels of all loggers."""
    for name, level in log_levels.log_levels().items():
        key = ConfigKey(name, ConfigType.UNKNOWN, None, LEVEL_DOC, accept_any_value)
        yield ConfigEntry(key, level, ConfigSource.DYNAMIC_BROKER_LOGGER, read_only=False)


def alter_log_levels(wanted: Mapping[str, str], delete: Sequence[str], *, validate_only: bool) -> None:
    """Set and remove log levels, all or none.

    Raises:
        KafkaError: A logger or a level does not exist.
    """
    for name, level in wanted.items():
        _check_logger_exists(name)
        if level not in log_levels.LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(log_levels.LEVELS))}",
            )
    for name in delete:
        if name == log_levels.ROOT_LOGGER:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
        _check_logger_exists(name)
    if not validate_only:
        for name, level in wanted.items():
            log_levels.set_level(name, level)
        for name in delete:
            log_levels.inherit_level(name)


def _check_logger_exists(name: str) -> None:
    if not log_levels.has_logger(name):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
