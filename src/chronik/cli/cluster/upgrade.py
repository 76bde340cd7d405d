"""`chronik cluster upgrade`: raise the cluster's feature level, which cannot be lowered again."""

from __future__ import annotations

import argparse

from chronik.cli.arguments import Actions, WrongInput, add_client_arguments, cluster_of, positive
from chronik.client.features import FEATURE, levels_told_by, raise_level


def add_arguments(actions: Actions) -> None:
    parser = actions.add_parser("upgrade", help="raise the feature level of the cluster; all nodes must support it")
    parser.add_argument(
        "--level", type=positive, metavar="N", help="new feature level (default: the highest that the broker supports)"
    )
    add_client_arguments(parser, run_upgrade)


def run_upgrade(arguments: argparse.Namespace) -> int:
    with cluster_of(arguments) as cluster:
        levels = cluster.retrying(lambda: levels_told_by(cluster.any_broker()))
        if levels is None:
            raise WrongInput(f"{arguments.bootstrap_server} does not support {FEATURE}: there is nothing to upgrade")
        wanted = arguments.level or levels.highest
        if wanted == levels.level:
            print(f"{FEATURE} is already {levels.level}; this node supports {levels.lowest} to {levels.highest}")
            return 0
        raise_level(cluster, wanted)
    print(f"{FEATURE} raised from {levels.level} to {wanted}")
    return 0
