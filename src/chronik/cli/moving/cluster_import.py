"""`chronik cluster import`: a standalone data folder becomes part of a cluster; nothing in the folder changes."""

from __future__ import annotations

import argparse
from pathlib import Path

from chronik.cli.arguments import Actions, add_client_arguments, cluster_of, positive
from chronik.cli.moving.moves import ask, carried_out
from chronik.errors import ChronikError
from chronik.moving.folder import StandaloneFolder
from chronik.moving.importing import give_up

GIVEN_UP = "{} is given up: what it had brought is deleted"


def add_arguments(actions: Actions) -> None:
    told = "make a standalone data folder part of a cluster; the folder stays as it is"
    parser = actions.add_parser("import", help=told)
    parser.add_argument(
        "folder", nargs="?", type=Path, metavar="DIR", help="the data folder of a standalone node, which is down"
    )
    add_import_arguments(parser)
    add_client_arguments(parser, run_import)


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--replication-factor", type=positive, metavar="N", help="replicas of each partition")
    parser.add_argument("--dry-run", action="store_true", help="show the plan, and do nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask whether to go on")
    parser.add_argument(
        "--give-up", action="store_true", help="delete what an import that did not come to its end has brought"
    )


def run_import(arguments: argparse.Namespace) -> int:
    if arguments.give_up:
        return run_give_up(arguments)
    if arguments.folder is None:
        raise ChronikError("which folder? Give DIR, or --give-up")
    source = StandaloneFolder(arguments.folder)
    try:
        with cluster_of(arguments) as cluster:
            return carried_out(source, cluster, arguments)
    finally:
        source.close()


def run_give_up(arguments: argparse.Namespace) -> int:
    if not arguments.yes and not ask("delete what the import under way has brought?"):
        return 1
    with cluster_of(arguments) as cluster:
        was = give_up(cluster)
    print("no import is under way" if was is None else GIVEN_UP.format(was))
    return 0
