"""`python -m bench.peers` (`make bench-peers`): Chronik compared with Apache Kafka, same client, one node and three.

All servers run throughout and are measured in interleaved rounds, so that other load on the machine affects them
equally. Prints a table of ratios; --keep writes docs/internals/benchmarks/peers.json, images, and a part of
docs/internals/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

import chronik
from bench.apache_kafka import NAME, kafka_unavailable_reason
from bench.peers.figures import PeerResults, format_table
from bench.peers.page import regenerate, write_results
from bench.peers.runner import PeerBenchmarkPlan, measure
from bench.peers.servers import SIZES, create_subjects
from bench.report_tables import describe_machine
from bench.servers import ROOT
from chronik.errors import ChronikError


def kafka_version() -> str:
    """Return the version of the installed Apache Kafka jar."""
    for jar in (ROOT / ".tools" / "jars" / NAME).glob("kafka-server-[0-9]*.jar"):
        return f"Apache Kafka {jar.stem.removeprefix('kafka-server-')}"
    jars = [path.stem for path in (ROOT / ".tools" / "jars" / NAME).glob("kafka-clients-*.jar")]
    return f"Apache Kafka {re.sub('.*-', '', jars[0])}" if jars else "Apache Kafka"


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="N", help="per load (default: %(default)s)")
    parser.add_argument("--trips", type=int, default=2000, metavar="N", help="per round (default: %(default)s)")
    parser.add_argument("--starts", type=int, default=5, metavar="N", help="per server (default: %(default)s)")
    parser.add_argument("--nodes", type=int, action="append", choices=SIZES, help="only clusters of this size")
    parser.add_argument("--without-kafka", action="store_true", help="measure Chronik alone")
    parser.add_argument("--keep", action="store_true", help="write the results to docs/")
    parser.add_argument("--draw", action="store_true", help="only regenerate docs/ from the stored results")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", metavar="DIR", help="directory for data")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    arguments = parse_arguments(argv)
    if arguments.draw:
        regenerate()
        return 0
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
    kafka = kafka_version() if missing is None else f"Apache Kafka is left out: {missing};"
    peers = PeerResults(
        describe_machine(), load_before, plan.rounds, plan.seconds, kafka, measured, chronik.__version__
    )
    print("\n\n".join(format_table(peers, nodes) for nodes in peers.cluster_sizes()))
    if arguments.keep:
        write_results(peers)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
