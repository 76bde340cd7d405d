"""`chronik restore`: restore a backup into an empty cluster; topics become visible after a byte-by-byte comparison."""

from __future__ import annotations

import argparse
from pathlib import Path

from chronik.cli.arguments import add_client_arguments, connect_cluster
from chronik.cli.migration.cluster_import import add_import_arguments, run_abort_import
from chronik.cli.migration.import_runner import execute_import, open_verified_backup
from chronik.errors import ChronikError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help="directory of the backup")
    add_import_arguments(parser)
    add_client_arguments(parser, run_restore)


def run_restore(arguments: argparse.Namespace) -> int:
    if arguments.give_up:
        return run_abort_import(arguments)
    if arguments.folder is None:
        raise ChronikError("no backup given: use FOLDER or --give-up")
    source = open_verified_backup(arguments.folder)
    try:
        with connect_cluster(arguments) as cluster:
            return execute_import(source, cluster, arguments)
    finally:
        source.close()
