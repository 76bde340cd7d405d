"""`chronik pipeline run`: land topics in tables, each record exactly once."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

from chronik.cli.arguments import (
    add_client_arguments,
    add_json_argument,
    parse_bootstrap_access,
    positive_int,
    positive_seconds,
)
from chronik.wording import pluralize

if TYPE_CHECKING:
    from chronik.pipeline.journal.reports import ProgressReporter

EXIT_OK = 0
INTERVAL_SECONDS = 10.0
STARTING = "starting Spark …"


def add_arguments(actions: Any) -> None:
    parser: argparse.ArgumentParser = actions.add_parser("run", help="land topics in tables until stopped")
    add_client_arguments(parser, run_landing)
    parser.add_argument("--table-root", metavar="DIR", required=True, help="directory of the tables, one per topic")
    parser.add_argument("--topics", metavar="A,B", help="topics to land (default: all with columnar.enabled=true)")
    parser.add_argument("--once", action="store_true", help="stop when all records that exist now have landed")
    parser.add_argument("--format", choices=("raw", "json"), help="store values as bytes, or JSON fields as columns")
    parser.add_argument(
        "--partition-by", choices=("date", "hour", "none"), help="table partitioning by record time (default: date)"
    )
    parser.add_argument(
        "--group", metavar="NAME", help="name of the pipeline, and of the group to which it commits offsets"
    )
    parser.add_argument("--max-records-per-round", type=positive_int, metavar="N", help="maximum per topic and commit")
    parser.add_argument(
        "--interval",
        type=positive_seconds,
        default=INTERVAL_SECONDS,
        metavar="SECONDS",
        help="time between rounds with little traffic; longer intervals give fewer, larger files "
        "(default: %(default)g)",
    )
    parser.add_argument("--allow-data-loss", action="store_true", help="skip records that are no longer available")
    parser.add_argument("--master", metavar="URL", help="spark://HOST:PORT, sc://HOST:PORT, local[N]; also"
                        " CHRONIK_SPARK_MASTER (default: this machine)")  # fmt: skip
    add_json_argument(parser, help="print one JSON object per round")


def run_landing(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.spark.environment_checks import require_packages

    require_packages("pyspark", "deltalake", "pyarrow")
    from chronik.pipeline.landing.runner import landing_session, run
    from chronik.pipeline.landing.settings import ROUND_RECORDS_MAX, default_group
    from chronik.pipeline.tables.storage import absolute_root

    topics = arguments.topics
    pipeline = arguments.group or default_group(absolute_root(arguments.table_root))
    if not arguments.json:
        print(STARTING, file=sys.stderr)
    with landing_session(arguments.master) as spark:
        summary = run(
            parse_bootstrap_access(arguments),
            arguments.table_root,
            None if topics is None else [name.strip() for name in topics.split(",") if name.strip()],
            once=arguments.once,
            format=arguments.format,
            partition_by=arguments.partition_by,
            group=pipeline,
            round_records_max=arguments.max_records_per_round or ROUND_RECORDS_MAX,
            interval_s=arguments.interval,
            allow_data_loss=arguments.allow_data_loss,
            timeout_s=arguments.timeout,
            spark=spark,
            reporter=_create_reporter(arguments, pipeline),
            stop=_install_stop_handlers(),
        )
    if not arguments.json:
        dead = sum(summary.dead_letters.values())
        print(
            f"landed: {pluralize(sum(summary.rows.values()), 'row')}, {pluralize(dead, 'dead-letter record')}; "
            f"topics: {len(summary.rows)}"
        )
    return EXIT_OK


def _create_reporter(arguments: argparse.Namespace, pipeline: str) -> ProgressReporter:
    from chronik.pipeline.journal.journal_reporter import JournalReporter
    from chronik.pipeline.journal.reports import CombinedReporter, ConsoleReporter, JsonReporter

    journal = JournalReporter(parse_bootstrap_access(arguments), pipeline)
    return CombinedReporter(JsonReporter() if arguments.json else ConsoleReporter(), journal)


def _install_stop_handlers() -> threading.Event:
    """Install signal handlers, and return the event that SIGINT and SIGTERM set to stop the pipeline.

    The current round completes, unless a second SIGINT arrives. Call this after the Spark session is
    created, because that installs a SIGINT handler of its own.
    """
    stop = threading.Event()

    def handle(number: int, _: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        # In another thread, because this one may hold the event's lock.
        threading.Thread(target=stop.set, daemon=True).start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return stop
