"""`chronik cluster upgrade`: raises the level, so that what newer nodes can do is used; there is no way back."""

from __future__ import annotations

import argparse

from chronik.cli.arguments import Actions, WrongInput, add_client_arguments, cluster_of, positive
from chronik.client.features import FEATURE, levels_told_by, raise_level


def add_arguments(actions: Actions) -> None:
    parser = actions.add_parser("upgrade", help="raise the level of the cluster, once all its nodes support it")
    parser.add_argument(
        "--level", type=positive, metavar="N", help="the new level (default: the highest that the node asked supports)"
    )
    add_client_arguments(parser, run_upgrade)


def run_upgrade(arguments: argparse.Namespace) -> int:
    with cluster_of(arguments) as cluster:
        levels = cluster.retrying(lambda: levels_told_by(cluster.any_broker()))
        if levels is None:
            raise WrongInput(f"{arguments.bootstrap_server} knows nothing of {FEATURE}: it has nothing to upgrade")
        wanted = arguments.level or levels.highest
        if wanted == levels.level:
            print(f"{FEATURE} is {levels.level} already; this node supports {levels.lowest} to {levels.highest}")
            return 0
        raise_level(cluster, wanted)
    print(f"{FEATURE} is {wanted}; it was {levels.level}")
    return 0
