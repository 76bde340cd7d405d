"""`chronik bench gaps`: for how long a partition takes no record, and gives none, while its brokers come and go."""

from __future__ import annotations

import argparse
from typing import Final

from chronik.bench.arguments import add_replication_argument, cluster_of, positive
from chronik.bench.clients import temporary_topics, unique_name
from chronik.bench.service_watch import Service, ServiceWatch

SECONDS_DEFAULT: Final = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=positive, default=SECONDS_DEFAULT, metavar="N", help="(default: %(default)s)")
    add_replication_argument(parser)


def run(arguments: argparse.Namespace) -> list[Service]:
    topic = unique_name("gaps")
    copies: int = arguments.replication_factor
    with cluster_of(arguments) as cluster, temporary_topics(cluster, [topic], replication_factor=copies):
        with ServiceWatch(arguments.bootstrap_server, topic, 0) as watch:
            watch.go_on_for(arguments.seconds)
        return [watch.seen()]
