"""`chronik restore`: restore a backup into an empty cluster; topics become visible after a byte-by-byte comparison."""

from __future__ import annotations

import argparse
from pathlib import Path

from chronik.cli.arguments import add_client_arguments, cluster_of
from chronik.cli.moving.cluster_import import add_import_arguments, run_give_up
from chronik.cli.moving.moves import carried_out, checked_backup
from chronik.errors import ChronikError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help="directory of the backup")
    add_import_arguments(parser)
    add_client_arguments(parser, run_restore)


def run_restore(arguments: argparse.Namespace) -> int:
    if arguments.give_up:
        return run_give_up(arguments)
    if arguments.folder is None:
        raise ChronikError("no backup given: use FOLDER or --give-up")
    source = checked_backup(arguments.folder)
    try:
        with cluster_of(arguments) as cluster:
            return carried_out(source, cluster, arguments)
    finally:
        source.close()
