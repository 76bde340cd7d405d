"""The schema registry of commands that decode typed records."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from chronik.cli.records.value_registry import read_registry_settings

if TYPE_CHECKING:
    from chronik.formats.registry_client import RegistrySettings


def parse_registry_argument(arguments: argparse.Namespace) -> RegistrySettings | None:
    """Return the registry of --registry with the settings in the client config file, or None if none was given.

    Raises:
        ConfigError: The URL or a setting is invalid.
    """
    from chronik.formats.registry_client import parse_registry_settings

    if arguments.registry is None:
        return None
    path = getattr(arguments, "client_config", None)
    return parse_registry_settings(arguments.registry, read_registry_settings(path))
