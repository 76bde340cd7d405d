"""`chronik cluster`: the parser of its subcommands."""

from __future__ import annotations

import argparse

from chronik.cli.cluster import certs, changing, growing, ok_to_stop, status, up_and_down, upgrade
from chronik.cli.moving import cluster_import


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for each in (up_and_down, status, growing, changing, ok_to_stop, upgrade, cluster_import, certs):
        each.add_arguments(actions)
