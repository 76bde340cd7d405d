"""The schema registry of commands that decode typed records."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chronik.formats.registry_client import RegistrySettings


def parse_registry_argument(arguments: argparse.Namespace) -> RegistrySettings | None:
    """Return the registry of --registry or of the client config file; None for that of the brokers or the table.

    If the file has credentials for the brokers' registry, ask the brokers for its URL.

    Raises:
        ChronikError: The URL or a setting is invalid.
    """
    from chronik.cli.arguments import connect_cluster
    from chronik.client.errors import ClientError
    from chronik.client.registry_discovery import discover_registry
    from chronik.client.registry_settings import read_registry_config
    from chronik.protocol.errors import KafkaError

    config = read_registry_config(getattr(arguments, "client_config", None))
    if url := arguments.registry or config.url:
        return config.build(url)
    if config.has_credentials:
        with suppress(ClientError, KafkaError), connect_cluster(arguments) as cluster:  # the command will report it
            discovered = discover_registry(cluster)
            return None if discovered is None else config.complete(discovered)
    return None
