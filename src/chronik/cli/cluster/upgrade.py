"""`chronik cluster upgrade`: raise the cluster's feature level, which cannot be lowered again."""

from __future__ import annotations

import argparse

from chronik.cli.arguments import InvalidInput, Subparsers, add_client_arguments, connect_cluster, parse_positive_int
from chronik.client.nodes import FEATURE_NAME, describe_feature_levels, raise_feature_level


def add_arguments(actions: Subparsers) -> None:
    parser = actions.add_parser("upgrade", help="raise the feature level of the cluster; all nodes must support it")
    parser.add_argument(
        "--level",
        type=parse_positive_int,
        metavar="N",
        help="new feature level (default: the highest that the broker supports)",
    )
    add_client_arguments(parser, run_upgrade)


def run_upgrade(arguments: argparse.Namespace) -> int:
    with connect_cluster(arguments) as cluster:
        levels = cluster.retry(lambda: describe_feature_levels(cluster.any_broker()))
        if levels is None:
            raise InvalidInput(
                f"{arguments.bootstrap_server} does not support {FEATURE_NAME}: there is nothing to upgrade"
            )
        wanted = arguments.level or levels.highest
        if wanted == levels.level:
            print(f"{FEATURE_NAME} is already {levels.level}; this node supports {levels.lowest} to {levels.highest}")
            return 0
        raise_feature_level(cluster, wanted)
    print(f"{FEATURE_NAME} raised from {levels.level} to {wanted}")
    return 0
