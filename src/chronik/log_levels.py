"""Levels of the process's loggers under Kafka's names, for DescribeConfigs and AlterConfigs. Not persistent."""

from __future__ import annotations

import logging
from typing import Final

ROOT_LOGGER: Final = "root"
"""Kafka's name of the root logger."""

CHRONIK_LOGGER: Final = "chronik"

LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Python levels by Kafka's level names. Python has no TRACE: it enables debug lines and is reported as TRACE."""


def log_levels() -> dict[str, str]:
    """Return the effective level of each logger."""
    return {name: _name(logger.getEffectiveLevel()) for name, logger in _loggers().items()}


def has_logger(name: str) -> bool:
    """Return whether the name is that of an existing logger."""
    return name in _loggers()


def set_level(name: str, level: str) -> None:
    """Set the level of a logger."""
    _loggers()[name].setLevel(LEVELS[level])


def inherit_level(name: str) -> None:
    """Remove a logger's own level, so that it inherits its parent's."""
    _loggers()[name].setLevel(logging.NOTSET)


def _loggers() -> dict[str, logging.Logger]:
    root = logging.getLogger()
    ours = {
        name: logger
        for name, logger in sorted(root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and (name == CHRONIK_LOGGER or name.startswith(f"{CHRONIK_LOGGER}."))
    }
    return {ROOT_LOGGER: root, **ours}


def _name(level: int) -> str:
    return next((name for name, lowest in reversed(LEVELS.items()) if level >= lowest), "TRACE")
