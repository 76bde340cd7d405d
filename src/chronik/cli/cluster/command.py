"""`chronik cluster`: the parser of its subcommands."""

from __future__ import annotations

import argparse

from chronik.cli.cluster import certs, maintenance, membership, ok_to_stop, status, up_down, upgrade
from chronik.cli.migration import cluster_import


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for each in (up_down, status, membership, maintenance, ok_to_stop, upgrade, cluster_import, certs):
        each.add_arguments(actions)
