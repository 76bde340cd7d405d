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


def add_bootstrap_argument(parser: argparse.ArgumentParser, help: str = "a broker of the cluster") -> None:
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        default=os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP,
        help=f"{help} (default: {BOOTSTRAP_VARIABLE} in the environment, or {DEFAULT_BOOTSTRAP})",
    )
    add_client_config_argument(parser)


def add_client_config_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--client-config",
        type=Path,
        metavar="FILE",
        default=os.environ.get(CLIENT_CONFIG_VARIABLE) or None,
        help="Kafka client properties file with the settings for TLS and SASL, such as security.protocol "
        f"(default: {CLIENT_CONFIG_VARIABLE} in the environment)",
    )


def parse_bootstrap_access(arguments: argparse.Namespace) -> BootstrapAccess:
    """Return the bootstrap servers and security settings of the parsed arguments.

    Raise ClientError if they are invalid.
    """
    return BootstrapAccess(arguments.bootstrap_server, load_security(arguments))


def load_security(arguments: argparse.Namespace) -> ClientSecurity:
    """Return the security settings of the client config file, or PLAINTEXT settings without a file.

    Raise ClientError if the file is invalid.
    """
    path = arguments.client_config
    return PLAINTEXT_SECURITY if path is None else parse_security(read_properties(Path(path))).with_absolute_paths()
