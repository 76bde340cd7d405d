"""Arguments and credentials of commands that use a schema registry, and the registry of a cluster."""

from __future__ import annotations

import argparse
import os
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from chronik.cli.arguments import (
    InvalidInput,
    add_client_arguments,
    add_registry_argument,
    connect_cluster,
)
from chronik.client.access.settings import ClientSecurity, parse_security, read_properties
from chronik.client.access.tls import create_ssl_context
from chronik.client.cluster import ClusterClient
from chronik.client.registry import RegistryAdminClient, RegistryEndpoint, get_user_info, parse_registry_url
from chronik.client.registry_discovery import find_registry_urls
from chronik.client.registry_settings import (
    BEARER_TOKEN,
    CREDENTIALS_SOURCE,
    PREFIX,
    SASL_INHERIT,
    URL_SETTING,
    USER_INFO,
    parse_registry_config,
)
from chronik.console.http import is_loopback_host

TOKEN_VARIABLE: Final = "CHRONIK_HTTP_TOKEN"

RegistryCommand = Callable[[argparse.Namespace, RegistryAdminClient], int]
"""A command that uses a schema registry."""


def add_registry_arguments(parser: argparse.ArgumentParser, run: RegistryCommand) -> None:
    """Add the arguments that select a registry, and run the command with a client of it."""

    def run_with_client(arguments: argparse.Namespace) -> int:
        with open_registry(arguments) as client:
            return run(arguments, client)

    add_registry_argument(parser)
    add_client_arguments(parser, run_with_client)


def open_registry(arguments: argparse.Namespace) -> RegistryAdminClient:
    """Return a client for the registry of --registry or of the client config file, or else of the cluster.

    Raises:
        ChronikError: The cluster has no registry or cannot be reached, or settings are invalid.
    """
    settings = _read_settings(arguments.client_config)
    url = arguments.registry or settings.get(URL_SETTING, "").partition(",")[0].strip()
    if url:
        access = build_access(url, settings)
    else:
        with connect_cluster(arguments) as cluster:
            access = build_access(find_registry_url(cluster), settings, is_own_cluster=True)
    return RegistryAdminClient(access, timeout_s=arguments.timeout)


def open_other_registry(url: str, config: Path | None, timeout_s: float) -> RegistryAdminClient:
    """Return a client for a registry with its own client config file."""
    return RegistryAdminClient(build_access(url, _read_settings(config)), timeout_s=timeout_s)


def find_registry_url(cluster: ClusterClient) -> str:
    """Return the URL of a node's schema registry, as the nodes report it.

    Raises:
        ClientError, KafkaError: No broker can be reached, or the client may not describe their configs.
        InvalidInput: No broker reports a registry.
    """
    if urls := find_registry_urls(cluster):
        return urls[0]
    raise InvalidInput(
        "the brokers report no schema registry: set registry or http in their config files to an address that clients "
        "can reach, or use --registry URL"
    )


def build_access(url: str, settings: Mapping[str, str], *, is_own_cluster: bool = False) -> RegistryEndpoint:
    """Return the access to a registry with the credentials in a client config file, if any.

    The SASL user name and password are sent to the cluster's own registry, or with basic.auth.credentials.source =
    SASL_INHERIT; in plain text only to loopback addresses.
    """
    parse_registry_config(settings)  # rejects unknown settings
    own = {name.removeprefix(PREFIX): value for name, value in settings.items() if name.startswith(PREFIX)}
    values = {name: value for name, value in settings.items() if not name.startswith(PREFIX)} | own
    security = parse_security(values)
    parts = parse_registry_url(url)
    tls = create_ssl_context(security) if parts.scheme == "https" else None
    is_private = parts.scheme == "https" or is_loopback_host(parts.netloc.rpartition("@")[2])
    inherits = is_own_cluster or values.get(CREDENTIALS_SOURCE, "").upper() == SASL_INHERIT
    token = values.get(BEARER_TOKEN) or (os.environ.get(TOKEN_VARIABLE) if is_own_cluster and is_private else None)
    if (user := get_user_info(parts)) is not None:
        authorization = _encode_basic(*user)
    elif values.get(BEARER_TOKEN):
        authorization = f"Bearer {values[BEARER_TOKEN]}"
    elif user_info := values.get(USER_INFO):
        authorization = _encode_basic(*user_info.partition(":")[::2])
    elif inherits and is_private and _has_password(security):
        authorization = _encode_basic(security.username, security.password)
    elif token:
        authorization = f"Bearer {token}"
    else:
        authorization = None
    return RegistryEndpoint(url, authorization, tls)


def _has_password(security: ClientSecurity) -> bool:
    return security.has_login and bool(security.username and security.password)


def _encode_basic(name: str, password: str) -> str:
    return f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"


def _read_settings(path: Path | str | None) -> dict[str, str]:
    return {} if path is None else read_properties(Path(path))
