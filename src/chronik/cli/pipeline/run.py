"""`chronik pipeline run`: land topics in tables, each record exactly once."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from chronik.cli.arguments import (
    InvalidInput,
    add_client_arguments,
    add_json_argument,
    add_registry_argument,
    parse_address,
    parse_bootstrap_access,
    parse_positive_int,
    parse_positive_seconds,
    parse_timestamp_ms,
)
from chronik.cli.pipeline.registry_argument import parse_registry_argument
from chronik.cli.pipeline.table_location import S3_HELP, add_table_root_arguments, parse_storage_options
from chronik.errors import ChronikError
from chronik.wording import pluralize

if TYPE_CHECKING:
    from chronik.pipeline.journal.reports import ProgressReporter
    from chronik.pipeline.landing.settings import StartPosition

EXIT_OK = 0
INTERVAL_SECONDS = 10.0
STARTING = "starting Spark …"
STOPPING = "stopping after the current round; press Ctrl-C again to stop immediately"


class InterruptedRun(ChronikError):
    """A run with `--once` was stopped by a signal before it was complete."""


def add_arguments(actions: Any) -> None:
    parser: argparse.ArgumentParser = actions.add_parser("run", help="land topics in tables until stopped")
    add_client_arguments(parser, run_landing)
    add_table_root_arguments(parser, required=True, help=f"directory of the tables, one per topic, {S3_HELP}")
    parser.add_argument("--topics", metavar="A,B", help="topics to land (default: all with columnar.enabled=true)")
    parser.add_argument(
        "--schema",
        metavar="FILE|COLUMNS",
        help="TOML or JSON file, or 'id bigint, name string' (implies --format json)",
    )
    parser.add_argument(
        "--from", dest="start", action="append", default=[], metavar="[TOPIC=]START",
        help="where a new table starts: earliest (default), latest, a time, or offset:N",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="stop when all records that exist now have landed")
    parser.add_argument(
        "--format",
        choices=("raw", "json", "avro", "protobuf", "json-schema", "auto"),
        help="store values as bytes (raw), or their fields as columns; auto decides from a sample",
    )
    parser.add_argument(
        "--key-format", choices=("raw", "json", "avro", "protobuf", "json-schema", "auto"), help="the same for keys"
    )
    parser.add_argument("--writer-schema", metavar="FILE", help="schema of values that do not name a registered schema")
    add_registry_argument(parser)
    parser.add_argument(
        "--table-format",
        choices=("delta", "iceberg"),
        help="format of new tables (default: columnar.table, else delta)",
    )
    parser.add_argument(
        "--partition-by",
        metavar="LIST",
        help="partitioning of new tables: date (default), hour, none, NAME, day(NAME), hour(NAME), bucket(N, NAME)",
    )
    parser.add_argument(
        "--group", metavar="NAME", help="name of the pipeline, and of the group to which it commits offsets"
    )
    parser.add_argument(
        "--max-records-per-round", type=parse_positive_int, metavar="N", help="maximum per topic and commit"
    )
    parser.add_argument(
        "--interval",
        type=parse_positive_seconds,
        default=INTERVAL_SECONDS,
        metavar="SECONDS",
        help="time between rounds with little traffic; longer intervals give fewer, larger files "
        "(default: %(default)g)",
    )
    parser.add_argument(
        "--standby",
        action="store_true",
        help="one of several drivers with the same options, of which one lands records and the others take over",
    )
    parser.add_argument("--allow-data-loss", action="store_true", help="skip records that are no longer available")
    parser.add_argument("--master", metavar="URL", help="spark://HOST:PORT, sc://HOST:PORT, local[N]; also"
                        " CHRONIK_SPARK_MASTER (default: this machine)")  # fmt: skip
    parser.add_argument(
        "--spark-ui", action="store_true", help="start Spark's web UI and print its address; also CHRONIK_SPARK_UI=1"
    )
    parser.add_argument(
        "--metrics",
        type=parse_address,
        metavar="HOST:PORT",
        help="serve Prometheus metrics at http://HOST:PORT/metrics",
    )
    parser.add_argument(
        "--no-maintenance", action="store_true", help="do not merge small files, expire versions or delete unused files"
    )
    parser.add_argument(
        "--target-file-bytes",
        type=parse_positive_int,
        metavar="N",
        help="target size of the tables' files (default: columnar.file.bytes of the topic, 128 MiB)",
    )
    parser.add_argument(
        "--retention-hours",
        type=parse_positive_int,
        metavar="H",
        help="retention of old versions (default: columnar.history.retention.ms of the topic, 7 days)",
    )
    add_json_argument(parser, help="print one JSON object per round and per maintenance")


def run_landing(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.spark.environment_checks import require_packages

    require_packages("pyspark", "deltalake", "pyarrow")
    from chronik.pipeline.landing.runner import run
    from chronik.pipeline.landing.settings import ROUND_RECORDS_MAX, derive_group_name
    from chronik.pipeline.spark.runtime import UI_SETTING
    from chronik.pipeline.table_maintenance.settings import MaintenanceOptions
    from chronik.pipeline.tables.storage import to_absolute_root

    topics = arguments.topics
    pipeline = arguments.group or derive_group_name(to_absolute_root(arguments.table_root))
    summary = run(
        parse_bootstrap_access(arguments),
        arguments.table_root,
        None if topics is None else [name.strip() for name in topics.split(",") if name.strip()],
        once=arguments.once,
        format=arguments.format,
        partition_by=arguments.partition_by,
        key_format=arguments.key_format,
        writer_schema=_read_writer_schema(arguments.writer_schema),
        table_format=arguments.table_format,
        registry=parse_registry_argument(arguments),
        group=pipeline,
        round_records_max=arguments.max_records_per_round or ROUND_RECORDS_MAX,
        interval_s=arguments.interval,
        allow_data_loss=arguments.allow_data_loss,
        storage_options=parse_storage_options(arguments),
        timeout_s=arguments.timeout,
        master=arguments.master,
        schema=arguments.schema,
        spark_settings={UI_SETTING: "true"} if arguments.spark_ui else None,
        start=_parse_start_arguments(arguments.start),
        maintenance=MaintenanceOptions(
            False if arguments.no_maintenance else None, arguments.target_file_bytes, arguments.retention_hours
        ),
        on_spark_start=lambda: None if arguments.json else print(STARTING, file=sys.stderr),
        reporter=_create_reporter(arguments, pipeline),
        stop=_install_stop_handlers(),
        standby=arguments.standby,
    )
    if not arguments.json:
        dead = sum(summary.dead_letters.values())
        print(
            f"landed: {pluralize(sum(summary.rows.values()), 'row')}, {pluralize(dead, 'dead-letter record')}; "
            f"topics: {len(summary.rows)}"
        )
    if arguments.once and not summary.is_complete:
        raise InterruptedRun("stopped before all records had landed; run the command again to continue")
    return EXIT_OK


def _read_writer_schema(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise InvalidInput(f"--writer-schema: cannot read {path}: {error}") from None


def _parse_start_arguments(texts: list[str]) -> dict[str, StartPosition]:
    """Parse `--from` arguments; the empty topic stands for all other topics. Raises InvalidInput."""
    starts: dict[str, StartPosition] = {}
    for text in texts:
        topic, _, start = text.rpartition("=")
        starts[topic] = _parse_start(start)
    return starts


def _parse_start(text: str) -> StartPosition:
    from chronik.pipeline.landing.settings import EARLIEST, LATEST, OFFSET_PREFIX, StartPosition

    if text in (EARLIEST, LATEST):
        return StartPosition(is_latest=text == LATEST)
    if text.startswith(OFFSET_PREFIX):
        number = text.removeprefix(OFFSET_PREFIX)
        if not number.isdecimal():
            raise InvalidInput(f"{text!r}: expected a number after {OFFSET_PREFIX}")
        return StartPosition(offset=int(number))
    return StartPosition(timestamp_ms=parse_timestamp_ms(text))


def _create_reporter(arguments: argparse.Namespace, pipeline: str) -> ProgressReporter:
    from chronik.pipeline.journal.journal_reporter import JournalReporter
    from chronik.pipeline.journal.reports import CombinedReporter, ConsoleReporter, JsonReporter

    reporters: list[ProgressReporter] = [JsonReporter() if arguments.json else ConsoleReporter()]
    if arguments.metrics is not None:
        from chronik.pipeline.journal.metrics_reporter import MetricsReporter

        reporters.append(MetricsReporter(arguments.metrics))
    return CombinedReporter(*reporters, JournalReporter(parse_bootstrap_access(arguments), pipeline))


def _install_stop_handlers() -> threading.Event:
    """Install signal handlers, and return the event that SIGINT and SIGTERM set to stop the pipeline.

    The current round completes, unless a second SIGINT arrives.
    """
    stop = threading.Event()

    def request_stop(number: int) -> None:
        stop.set()
        if number == signal.SIGINT:
            print(STOPPING, file=sys.stderr, flush=True)

    def handle(number: int, _: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        # In another thread, because this one may hold the lock of the event or of the stream.
        threading.Thread(target=request_stop, args=(number,), daemon=True).start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return stop
