"""The schema registry of a pipeline or query: the one that is configured, that of the brokers, or that of a table."""

from __future__ import annotations

from typing import Final

from chronik.client.cluster import ClusterClient
from chronik.client.registry_discovery import discover_registry
from chronik.errors import ConfigError
from chronik.formats.registry_client import RegistrySettings

PATIENCE_SECONDS: Final = 20.0
"""Time for which commands wait for a registry that is not available. Landing retries its rounds instead."""


def find_registry(
    given: RegistrySettings | None, cluster: ClusterClient | None, stored: RegistrySettings | None = None
) -> RegistrySettings | None:
    """Return the registry that is given, else the one that the brokers name, else the one that a table has stored.

    Raises:
        ClientError, KafkaError: No broker can be reached, or the client may not describe their configs.
    """
    if given is not None or cluster is None:
        return given or stored
    return discover_registry(cluster) or stored


def resolve_registry(
    given: RegistrySettings | None, cluster: ClusterClient | None, stored: RegistrySettings | None = None
) -> RegistrySettings:
    """Return the registry as `find_registry` does.

    Raises:
        ConfigError: There is none.
        ClientError, KafkaError: No broker can be reached, or the client may not describe their configs.
    """
    found = find_registry(given, cluster, stored)
    if found is None:
        raise ConfigError("the records name schemas, but there is no schema registry: set its URL with --registry")
    return found


def with_patience(registry: RegistrySettings | None) -> RegistrySettings | None:
    """Return a registry for which requests wait while it is not available, for commands that are not repeated."""
    if registry is None or registry.patience_s:
        return registry
    return registry._replace(patience_s=PATIENCE_SECONDS)
