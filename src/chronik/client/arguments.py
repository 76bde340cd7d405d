"""Command-line arguments for the bootstrap servers and the client config file."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from chronik.client.access.settings import (
    PLAINTEXT_SECURITY,
    BootstrapAccess,
    ClientSecurity,
    parse_security,
    read_properties,
)
from chronik.client.cluster import DEFAULT_BOOTSTRAP

BOOTSTRAP_VARIABLE = "CHRONIK_BOOTSTRAP_SERVER"
CLIENT_CONFIG_VARIABLE = "CHRONIK_CLIENT_CONFIG"


def add_bootstrap_argument(parser: argparse.ArgumentParser, help: str = "a broker to ask") -> None:
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        default=os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP,
        help=f"{help}; also {BOOTSTRAP_VARIABLE} (now %(default)s)",
    )
    add_client_config_argument(parser)


def add_client_config_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--client-config",
        type=Path,
        metavar="FILE",
        default=os.environ.get(CLIENT_CONFIG_VARIABLE) or None,
        help="a Kafka client properties file (security.protocol, sasl.mechanism, …), for brokers that require TLS or "
        "authentication; also " + CLIENT_CONFIG_VARIABLE,
    )


def parse_bootstrap_access(arguments: argparse.Namespace) -> BootstrapAccess:
    """Return the bootstrap servers and security settings of the parsed arguments. Raises ClientError."""
    return BootstrapAccess(arguments.bootstrap_server, load_security(arguments))


def load_security(arguments: argparse.Namespace) -> ClientSecurity:
    """Return the security settings of the client config file, or those of an open broker. Raises ClientError."""
    path = arguments.client_config
    return PLAINTEXT_SECURITY if path is None else parse_security(read_properties(Path(path))).with_absolute_paths()
