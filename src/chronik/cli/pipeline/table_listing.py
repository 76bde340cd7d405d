"""`chronik pipeline tables`: size, lag and maintenance of tables."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from chronik.cli.arguments import add_client_arguments, add_json_argument, connect_cluster
from chronik.cli.output import Cell, format_table, print_json
from chronik.cli.pipeline.table_location import S3_HELP, add_table_root_arguments, parse_storage_options
from chronik.client.errors import ClientError

if TYPE_CHECKING:
    from chronik.pipeline.maintenance.table_listing import NextMaintenance, TableStatus
    from chronik.pipeline.tables.table_statistics import MaintenanceRecord

EXIT_OK: Final = 0

COLUMNS: Final = (
    "TABLE", "FORMAT", "ROWS", "SIZE", "FILES", "AVG-FILE", "VERSIONS", "LAG", "LAG-TIME", "DEAD",
    "LAST-MAINTENANCE", "NEXT",
)  # fmt: skip

UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def add_arguments(actions: Any) -> None:
    parser = actions.add_parser("tables", help="show the size, lag and maintenance of tables")
    add_client_arguments(parser, run_tables)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="topics (default: all tables)")
    add_table_root_arguments(parser, required=True, help=f"directory of the tables, {S3_HELP}")
    add_json_argument(parser)


def run_tables(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.spark.environment_checks import require_packages

    require_packages("deltalake", "pyarrow")
    from chronik.pipeline.maintenance.table_listing import list_tables
    from chronik.pipeline.tables.storage import to_absolute_root

    root, options = to_absolute_root(arguments.table_root), parse_storage_options(arguments)
    topics = arguments.topics or None
    try:
        with connect_cluster(arguments) as cluster:
            found = list_tables(root, topics, cluster=cluster, storage_options=options)
    except ClientError as error:
        print(f"chronik: {error}; the lag is unknown", file=sys.stderr)
        found = list_tables(root, topics, storage_options=options)
    if arguments.json:
        print_json([asdict(each) | {"average_file_bytes": each.average_file_bytes} for each in found])
    else:
        now_ms = time.time_ns() // 1_000_000
        print(format_table(COLUMNS, [_build_row(each, now_ms) for each in found]))
    return EXIT_OK


def _build_row(status: TableStatus, now_ms: int) -> tuple[Cell, ...]:
    from chronik.pipeline.journal.progress_bar import format_duration

    average = status.average_file_bytes
    return (
        status.table,
        status.format,
        status.rows,
        format_size(status.size_bytes),
        status.files,
        None if average is None else format_size(average),
        status.versions,
        status.lag_records,
        None if status.lag_seconds is None else format_duration(status.lag_seconds),
        status.dead_letters,
        _format_last(status.last_maintenance, now_ms),
        _format_next(status.next_maintenance, now_ms),
    )


def format_size(size_bytes: int) -> str:
    """Format a size with a binary unit: `512 B`, `1.5 KiB`, `128.0 MiB`."""
    value, unit = float(size_bytes), 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{size_bytes} B" if unit == 0 else f"{value:.1f} {UNITS[unit]}"


def _format_last(record: MaintenanceRecord | None, now_ms: int) -> str | None:
    from chronik.pipeline.journal.progress_bar import format_duration
    from chronik.pipeline.tables.table_statistics import MaintenanceKind

    if record is None:
        return None
    result = {
        MaintenanceKind.COMPACTION: f" {record.files_removed}→{record.files_added} files",
        MaintenanceKind.VACUUM: f" {record.files_deleted} files, {record.versions_expired} versions",
        MaintenanceKind.REBUILD: "",
    }[record.kind]
    return f"{record.kind}{result}, {format_duration(max(0.0, (now_ms - record.at_ms) / 1000))} ago"


def _format_next(planned: NextMaintenance | None, now_ms: int) -> str:
    from chronik.pipeline.journal.progress_bar import format_duration

    if planned is None:
        return "disabled"
    wait_s = (planned.due_ms - now_ms) / 1000
    return f"{planned.action} {'now' if wait_s <= 0 else f'in {format_duration(wait_s)}'}"
