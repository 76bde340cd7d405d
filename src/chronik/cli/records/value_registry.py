"""The schema registry from which `consume` and `produce` read the schemas of typed values."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from chronik.cli.arguments import InvalidInput, connect_cluster
from chronik.client.access.settings import read_properties
from chronik.client.registry_discovery import discover_registry, is_private_url
from chronik.formats.registry_client import RegistryClient, RegistrySettings, parse_registry_settings

PREFIX: Final = "schema.registry."
"""Prefix that settings of a schema registry may have in a client config file."""

_LOGIN_SETTINGS: Final = ("basic.auth.user.info", "bearer.auth.token")
_TLS_SETTINGS: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")


def open_value_registry(arguments: argparse.Namespace) -> RegistryClient:
    """Return a client for the registry of --registry, or else for the registry of the cluster.

    Raises:
        ChronikError: The cluster has no registry or cannot be reached, or settings are invalid.
    """
    settings = read_registry_settings(arguments.client_config)
    if arguments.registry is not None:
        found = parse_registry_settings(arguments.registry, settings)
    else:
        with connect_cluster(arguments) as cluster:
            discovered = discover_registry(cluster)
        if discovered is None:
            raise InvalidInput(
                "the brokers have no schema registry: set http or registry in their config files, or use --registry URL"
            )
        found = _add_login(discovered, settings)
    return RegistryClient(found._replace(timeout_s=arguments.timeout))


def _add_login(discovered: RegistrySettings, settings: dict[str, str]) -> RegistrySettings:
    """Add the login for the registry of the cluster that the client config file or the environment contains."""
    login, token = (settings.get(name, "") for name in _LOGIN_SETTINGS)
    if login or token:
        return discovered._replace(login=login, token=token)
    if not discovered.login and all(map(is_private_url, discovered.url.split(","))):
        return discovered._replace(token=os.environ.get("CHRONIK_HTTP_TOKEN", ""))
    return discovered


def read_registry_settings(path: Path | str | None) -> dict[str, str]:
    """Return the settings of a client config file that are for schema registries, without prefix."""
    if path is None:
        return {}
    given = read_properties(Path(path))
    found = {name: given[name] for name in _LOGIN_SETTINGS + _TLS_SETTINGS if given.get(name)}
    found |= {name: given[PREFIX + name] for name in _LOGIN_SETTINGS + _TLS_SETTINGS if given.get(PREFIX + name)}
    return found
