"""`python -m bench.peers` (`make bench-peers`): Chronik beside Apache Kafka, by one client, of one node and of three.

All servers run all the time and take turns, so that whatever else the machine does hits them alike. Prints a table of
ratios; with --keep writes docs/benchmarks/peers.json, pictures in docs/images and a section of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

import chronik
from bench.apache_kafka import NAME, why_missing
from bench.peers.figures import Peers, table
from bench.peers.measuring import Plan, measure
from bench.peers.page import draw, keep
from bench.peers.subjects import SIZES, subjects
from bench.servers import ROOT
from bench.tables import machine
from chronik.errors import ChronikError


def kafka_version() -> str:
    """By the jar that is run."""
    for jar in (ROOT / ".tools" / "jars" / NAME).glob("kafka-server-[0-9]*.jar"):
        return f"Apache Kafka {jar.stem.removeprefix('kafka-server-')}"
    jars = [path.stem for path in (ROOT / ".tools" / "jars" / NAME).glob("kafka-clients-*.jar")]
    return f"Apache Kafka {re.sub('.*-', '', jars[0])}" if jars else "Apache Kafka"


def arguments_of(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="N", help="of one load (default: %(default)s)")
    parser.add_argument("--trips", type=int, default=2000, metavar="N", help="a round (default: %(default)s)")
    parser.add_argument("--starts", type=int, default=5, metavar="N", help="of each (default: %(default)s)")
    parser.add_argument("--nodes", type=int, action="append", choices=SIZES, help="only clusters of so many")
    parser.add_argument("--without-kafka", action="store_true", help="measure Chronik alone")
    parser.add_argument("--keep", action="store_true", help="write what was measured into docs/")
    parser.add_argument("--draw", action="store_true", help="measure nothing: draw what docs/ has kept once more")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", metavar="DIR", help="for data")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    arguments = arguments_of(argv)
    if arguments.draw:
        draw()
        return 0
    arguments.folder.mkdir(parents=True, exist_ok=True)
    missing = "as asked" if arguments.without_kafka else why_missing()
    load_before = os.getloadavg()[0]
    chosen = subjects(with_kafka=missing is None, sizes=tuple(arguments.nodes or SIZES))
    plan = Plan(arguments.rounds, arguments.seconds, arguments.trips, arguments.starts)
    try:
        measured = measure(chosen, plan, arguments.folder.resolve())
    except ChronikError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    kafka = kafka_version() if missing is None else f"Apache Kafka is left out: {missing};"
    peers = Peers(machine(), load_before, plan.rounds, plan.seconds, kafka, measured, chronik.__version__)
    print("\n\n".join(table(peers, nodes) for nodes in peers.sizes()))
    if arguments.keep:
        keep(peers)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
