"""Arguments of commands that look at a cluster, by Kafka's API and by the nodes' pages."""

from __future__ import annotations

import argparse
import os
from typing import Final

from chronik.cli.arguments import BOOTSTRAP_VARIABLE, WrongInput, add_client_config_argument, security_of
from chronik.cli.watching.pages import HttpPort
from chronik.client.cluster import DEFAULT_BOOTSTRAP, parse_bootstrap

HTTPS: Final = "https://"
HTTP: Final = "http://"
TOKEN_VARIABLE: Final = "CHRONIK_HTTP_TOKEN"
"""As it is for nodes."""


def add_watching_arguments(parser: argparse.ArgumentParser) -> None:
    """Whether somebody has named a broker makes a difference: so what it is else stands in `bootstrap_default`."""
    default = os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
    parser.set_defaults(bootstrap_default=default)
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        help=f"a broker of the cluster; also {BOOTSTRAP_VARIABLE}, where neither a file nor a folder is given",
    )
    add_client_config_argument(parser)
    parser.add_argument(
        "--http",
        action="append",
        default=[],
        metavar="[https://]HOST:PORT",
        help="the HTTP port of a node, for what only its pages tell; may be given for each. Their token is in "
        f"{TOKEN_VARIABLE}, and whom to trust in the file of --client-config",
    )


def ports_named(arguments: argparse.Namespace) -> list[HttpPort]:
    """Raises WrongInput, ClientError."""
    from chronik.client.access.tls import context_of

    token = os.environ.get(TOKEN_VARIABLE) or None
    found: list[HttpPort] = []
    for text in (each for given in arguments.http for each in given.split(",")):
        tls = context_of(security_of(arguments)) if text.startswith(HTTPS) else None
        place = text.removeprefix(HTTPS).removeprefix(HTTP).rstrip("/")
        if not place:
            raise WrongInput(f"--http {text!r}: expected HOST:PORT")
        found += [HttpPort(address, token, tls) for address in parse_bootstrap(place)]
    return found
