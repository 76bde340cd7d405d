"""Arguments of commands that monitor a cluster over Kafka's protocol and HTTP."""

from __future__ import annotations

import argparse
import os
from typing import Final

from chronik.cli.arguments import BOOTSTRAP_VARIABLE, InvalidInput, add_client_config_argument, load_security
from chronik.cli.monitoring.node_pages import HttpEndpoint
from chronik.client.cluster import DEFAULT_BOOTSTRAP, parse_bootstrap

HTTPS: Final = "https://"
HTTP: Final = "http://"
TOKEN_VARIABLE: Final = "CHRONIK_HTTP_TOKEN"
"""Name of the environment variable with the nodes' HTTP token, which `chronik start` also reads."""


def add_monitoring_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for connecting to a cluster. The default broker is stored in `bootstrap_default`."""
    default = os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
    parser.set_defaults(bootstrap_default=default)
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        help=f"a broker of the cluster (default: {BOOTSTRAP_VARIABLE}, unless a config file or a directory is given)",
    )
    add_client_config_argument(parser)
    parser.add_argument(
        "--http",
        action="append",
        default=[],
        metavar="[https://]HOST:PORT",
        help="HTTP address of a node, for facts that only /status and /metrics have; repeatable. The token is read "
        f"from {TOKEN_VARIABLE}, and trusted certificates from the file of --client-config",
    )


def parse_http_endpoints(arguments: argparse.Namespace) -> list[HttpEndpoint]:
    """Parse the --http addresses; raise InvalidInput if one is invalid."""
    from chronik.client.access.tls import create_ssl_context

    token = os.environ.get(TOKEN_VARIABLE) or None
    found: list[HttpEndpoint] = []
    for text in (each for given in arguments.http for each in given.split(",")):
        tls = create_ssl_context(load_security(arguments)) if text.startswith(HTTPS) else None
        address_text = text.removeprefix(HTTPS).removeprefix(HTTP).rstrip("/")
        if not address_text:
            raise InvalidInput(f"--http {text!r}: expected HOST:PORT")
        found += [HttpEndpoint(address, token, tls) for address in parse_bootstrap(address_text)]
    return found
