"""`python -m bench.peers` (`make bench-peers`): Chronik compared with Apache Kafka, same client, one node and three.

All servers run throughout and are measured in interleaved rounds, so that other load on the machine affects them
equally. Prints a table of ratios; --keep writes docs/internals/benchmarks/apache-kafka.json, its page and its images.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import chronik
from bench.apache_kafka import describe_kafka, kafka_unavailable_reason
from bench.peers.figures import SIZES, PeerResults, build_tables, create_subjects, store_results
from bench.peers.runner import PeerBenchmarkPlan, measure
from bench.results import add_keep_option, describe_machine
from bench.servers import ROOT
from chronik.errors import ChronikError
from tools.docs.benchmark_pages import update_pages


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="N", help="per load (default: %(default)s)")
    parser.add_argument("--trips", type=int, default=2000, metavar="N", help="per round (default: %(default)s)")
    parser.add_argument("--starts", type=int, default=5, metavar="N", help="per server (default: %(default)s)")
    parser.add_argument("--nodes", type=int, action="append", choices=SIZES, help="only clusters of this size")
    parser.add_argument("--without-kafka", action="store_true", help="measure Chronik alone")
    add_keep_option(parser)
    parser.add_argument("--folder", type=Path, default=ROOT / "build", metavar="DIR", help="directory for data")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    arguments = parse_arguments(argv)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    missing = "--without-kafka" if arguments.without_kafka else kafka_unavailable_reason()
    load_before = os.getloadavg()[0]
    selected = create_subjects(with_kafka=missing is None, sizes=tuple(arguments.nodes or SIZES))
    plan = PeerBenchmarkPlan(arguments.rounds, arguments.seconds, arguments.trips, arguments.starts)
    try:
        measured = measure(selected, plan, arguments.folder.resolve())
    except ChronikError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    peers = PeerResults(
        describe_machine(),
        load_before,
        plan.rounds,
        plan.seconds,
        describe_kafka(missing),
        measured,
        chronik.__version__,
    )
    print("\n\n".join(table.to_markdown() for table in build_tables(peers)))
    if arguments.keep:
        store_results(peers)
        update_pages()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
