"""The loggers of this process and their levels, by Kafka's names. A change lasts until the process ends."""

from __future__ import annotations

import logging
from typing import Final

ROOT: Final = "root"
"""Kafka's name for the logger that all others inherit their level from."""

OURS: Final = "chronik"

LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Python has no TRACE: it lets through what DEBUG does, and is shown as it was set."""


def log_levels() -> dict[str, str]:
    """Returns the level of each logger, whether its own or its parent's."""
    return {name: _name(logger.getEffectiveLevel()) for name, logger in _loggers().items()}


def knows(name: str) -> bool:
    return name in _loggers()


def set_level(name: str, level: str) -> None:
    _loggers()[name].setLevel(LEVELS[level])


def inherit_level(name: str) -> None:
    _loggers()[name].setLevel(logging.NOTSET)


def _loggers() -> dict[str, logging.Logger]:
    root = logging.getLogger()
    ours = {
        name: logger
        for name, logger in sorted(root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and (name == OURS or name.startswith(f"{OURS}."))
    }
    return {ROOT: root, **ours}


def _name(level: int) -> str:
    return next((name for name, lowest in reversed(LEVELS.items()) if level >= lowest), "TRACE")
