"""`chronik cluster import`: import a standalone data directory into a cluster; the directory is not changed."""

from __future__ import annotations

import argparse
from pathlib import Path

from chronik.cli.arguments import Subparsers, add_client_arguments, connect_cluster, parse_positive_int
from chronik.cli.migration.import_runner import confirm, execute_import
from chronik.errors import ChronikError
from chronik.migration.directory_source import DirectorySource
from chronik.migration.importer import abort_import

ABORTED = "import {} aborted: the imported data was deleted"


def add_arguments(actions: Subparsers) -> None:
    summary = "import the data directory of a standalone node into a cluster; the directory is not changed"
    parser = actions.add_parser("import", help=summary)
    parser.add_argument(
        "folder", nargs="?", type=Path, metavar="DIR", help="data directory of a stopped standalone node"
    )
    add_import_arguments(parser)
    add_client_arguments(parser, run_import)


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--replication-factor", type=parse_positive_int, metavar="N", help="replication factor of the topics"
    )
    parser.add_argument("--dry-run", action="store_true", help="show the plan without executing it")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument(
        "--give-up", action="store_true", help="abort an unfinished import, and delete the data that it has copied"
    )


def run_import(arguments: argparse.Namespace) -> int:
    if arguments.give_up:
        return run_abort_import(arguments)
    if arguments.folder is None:
        raise ChronikError("no data directory given: use DIR or --give-up")
    source = DirectorySource(arguments.folder)
    try:
        with connect_cluster(arguments) as cluster:
            return execute_import(source, cluster, arguments)
    finally:
        source.close()


def run_abort_import(arguments: argparse.Namespace) -> int:
    if not arguments.yes and not confirm("Delete the data of the unfinished import?"):
        return 1
    with connect_cluster(arguments) as cluster:
        aborted = abort_import(cluster)
    print("there is no unfinished import" if aborted is None else ABORTED.format(aborted))
    return 0
