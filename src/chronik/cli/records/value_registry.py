"""The schema registry from which `consume`, `produce` and the pipeline read the schemas of typed values."""

from __future__ import annotations

import argparse
import os
from typing import Final

from chronik.cli.arguments import InvalidInput, connect_cluster
from chronik.client.registry_discovery import discover_registry, is_private_url
from chronik.client.registry_settings import RegistryConfig, read_registry_config
from chronik.formats.registry_client import RegistryClient, RegistrySettings

TOKEN_VARIABLE: Final = "CHRONIK_HTTP_TOKEN"


def open_value_registry(arguments: argparse.Namespace) -> RegistryClient:
    """Return a client for the registry of --registry or of the client config file, or else of the cluster.

    Raises:
        ChronikError: The cluster has no registry or cannot be reached, or settings are invalid.
    """
    config = read_registry_config(arguments.client_config)
    if url := arguments.registry or config.url:
        found = config.build(url)
    else:
        with connect_cluster(arguments) as cluster:
            discovered = discover_registry(cluster)
        if discovered is None:
            raise InvalidInput(
                "the brokers have no schema registry: set http or registry in their config files, or use --registry URL"
            )
        found = _complete(discovered, config)
    return RegistryClient(found._replace(timeout_s=arguments.timeout))


def _complete(discovered: RegistrySettings, config: RegistryConfig) -> RegistrySettings:
    """Add the credentials for the registry of the cluster that the client config file or the environment contains."""
    found = config.complete(discovered)
    if not found.login and not found.token and all(map(is_private_url, found.url.split(","))):
        return found._replace(token=os.environ.get(TOKEN_VARIABLE, ""))
    return found
