"""Passwords from a file, the environment or a prompt; never from the command line, which others on the machine see."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from chronik.errors import ConfigError

PASSWORD_VARIABLE: Final = "CHRONIK_PASSWORD"


def add_password_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help=f"the password is its first line; also {PASSWORD_VARIABLE} in the environment, or a prompt",
    )


def password_from(file: Path | None, user: str) -> str:
    """Raises ConfigError when there is none, or two that differ."""
    if file is not None:
        return password_in_file(file)
    if PASSWORD_VARIABLE in os.environ:
        return password_in_variable(PASSWORD_VARIABLE)
    if not sys.stdin.isatty():
        raise ConfigError(f"no password for {user!r}: give --password-file FILE, or {PASSWORD_VARIABLE}")
    from getpass import getpass

    password = getpass(f"Password for {user}: ")
    if not password:
        raise ConfigError("an empty password is none")
    if getpass("Once more: ") != password:
        raise ConfigError("the two passwords differ")
    return password


def password_in_file(file: Path) -> str:
    """Raises ConfigError, OSError."""
    password = file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    if not password:
        raise ConfigError(f"{file}: expected the password in its first line")
    return password


def password_in_variable(name: str) -> str:
    """Raises ConfigError."""
    if name not in os.environ:
        raise ConfigError(f"{name} is not in the environment: expected a password")
    if not os.environ[name]:
        raise ConfigError(f"{name} is empty: expected a password")
    return os.environ[name]
