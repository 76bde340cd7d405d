"""Passwords from a file, the environment or a prompt.

There is no command-line option for a password, because other users of the machine can see command lines.
"""

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
        help=f"file with the password on its first line (default: {PASSWORD_VARIABLE} in the environment, or a prompt)",
    )


def read_password(file: Path | None, user: str) -> str:
    """Return the user's password from the file, the environment or a prompt.

    Raises:
        ConfigError: No password is available, or the two entered passwords differ.
    """
    if file is not None:
        return read_password_file(file)
    if PASSWORD_VARIABLE in os.environ:
        return read_password_variable(PASSWORD_VARIABLE)
    if not sys.stdin.isatty():
        raise ConfigError(f"no password for user {user!r}: use --password-file FILE or set {PASSWORD_VARIABLE}")
    from getpass import getpass

    password = getpass(f"Password for {user}: ")
    if not password:
        raise ConfigError("the password must not be empty")
    if getpass("Repeat the password: ") != password:
        raise ConfigError("the passwords do not match")
    return password


def read_password_file(file: Path) -> str:
    """Return the first line of a password file; raise ConfigError if it is empty."""
    password = file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    if not password:
        raise ConfigError(f"{file}: expected the password on its first line")
    return password


def read_password_variable(name: str) -> str:
    """Return the password in an environment variable; raise ConfigError if the variable is unset or empty."""
    if name not in os.environ:
        raise ConfigError(f"environment variable {name} is not set: expected a password")
    if not os.environ[name]:
        raise ConfigError(f"environment variable {name} is empty: expected a password")
    return os.environ[name]
