"""`chronik pipeline sql`: run SQL on topics (landed rows and live tail), and print the rows."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from chronik.cli.arguments import (
    InvalidInput,
    add_bootstrap_argument,
    add_debug_argument,
    add_registry_argument,
    parse_bootstrap_access,
    parse_positive_int,
)
from chronik.cli.pipeline.registry_argument import parse_registry_argument
from chronik.cli.pipeline.table_location import S3_HELP, add_table_root_arguments, parse_storage_options
from chronik.wording import pluralize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from chronik.cli.pipeline.result_files import ResultFormat
    from chronik.pipeline.journal.progress_bar import ProgressBar

FORMATS = ("table", "json", "jsonl", "csv", "arrow", "parquet")
FILE_FORMATS = ("arrow", "parquet")
"""Formats that only files have, because they are not text."""

STARTING = "starting a Spark server for this and further queries (chronik pipeline server stop stops it) …"

STARTING_EMBEDDED = "starting Spark for this command …"

PROGRESS_DELAY_SECONDS = 1.0
"""Time after which the rows that were written to a file are counted on a terminal."""

DEFAULT_ROWS = 100
"""Default maximum number of result rows that `chronik pipeline sql` prints."""


class ResultOutput(NamedTuple):
    """A file for the rows of a result."""

    path: Path
    format: ResultFormat


def add_arguments(actions: Any) -> None:
    parser: argparse.ArgumentParser = actions.add_parser(
        "sql",
        help="query topics with SQL: landed rows and the live tail",
        description="Query topics with SQL. Each topic is a view: orders has all records, orders_cold the landed rows,"
        " orders_hot the live tail. Quote names with dots or dashes with backticks, or replace these characters by _."
        " Without a statement, the command shows a prompt.",
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "statement", nargs="?", metavar="STATEMENT", help="a Spark SQL statement; -: read it from stdin"
    )
    parser.add_argument("-f", "--file", metavar="FILE", help="file with statements, separated by ;")
    add_bootstrap_argument(parser)
    add_table_root_arguments(
        parser, default="tables", help=f"directory of the tables, {S3_HELP} (default: %(default)s)"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="json, jsonl: one object per line; arrow and parquet need --output (default: table, or the suffix of"
        " --output)",
    )
    parser.add_argument("--json", action="store_const", dest="format", const="json", help="same as --format json")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write all rows to a .csv, .jsonl, .arrow or .parquet file, which appears when it is complete",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="show how many rows, files and bytes the query would read and skip, instead of running it (with --json: as"
        " JSON)",
    )
    parser.add_argument(
        "-n",
        "--rows",
        type=parse_positive_int,
        metavar="N",
        default=DEFAULT_ROWS,
        help="maximum rows in a table (default: %(default)s)",
    )
    parser.add_argument(
        "--master",
        metavar="URL",
        help="spark://HOST:PORT, local[N], or sc://HOST:PORT of a Spark Connect server (default: a local server that is"
        " started on demand and keeps running)",
    )
    add_registry_argument(parser)
    parser.add_argument("--no-server", action="store_true", help="run Spark in this process instead of using a server")
    parser.add_argument("--timing", action="store_true", help="print the elapsed time to stderr")
    add_debug_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.query.lexer import split_statements
    from chronik.pipeline.spark.environment_checks import require_packages

    is_interactive = arguments.statement is None and arguments.file is None and sys.stdin.isatty()
    found = [] if is_interactive else split_statements(_read_statements(arguments))
    if not found and not is_interactive:
        raise InvalidInput("no statement given: use chronik pipeline sql 'SELECT …', or --file")
    output = _parse_output(arguments, len(found))
    if arguments.explain:
        _check_explain_arguments(arguments, len(found))
    require_packages("pyspark", "pyarrow", "deltalake")
    _set_utc_time_zone()
    # PySpark's own logger would print every error with the JVM's stack trace.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    began = time.monotonic()
    session = _open_session(arguments)
    ready = time.monotonic()
    try:
        if is_interactive:
            _run_prompt(session, arguments)
        for statement in found:
            if arguments.explain:
                _explain(session, statement, arguments)
                continue
            _run(session, statement, arguments, output, prune=len(found) == 1)
        if arguments.timing and not is_interactive:
            print(f"{time.monotonic() - ready:.2f} s, after {ready - began:.2f} s to start Spark", file=sys.stderr)
    finally:
        session.stop()  # otherwise a server would continue a query that Ctrl-C has interrupted here
    return 0


def _parse_output(arguments: argparse.Namespace, statements: int) -> ResultOutput | None:
    """Return the file to write and its format, or None without `--output`."""
    from chronik.cli.pipeline.result_files import check_output_path, choose_format

    if arguments.output is None:
        if arguments.format in FILE_FORMATS:
            raise InvalidInput(f"--format {arguments.format}: needs --output FILE")
        return None
    if statements != 1:
        raise InvalidInput("--output: expected exactly one statement")
    path = Path(arguments.output)
    format = choose_format(path, arguments.format)
    check_output_path(path)
    return ResultOutput(path, format)


def _check_explain_arguments(arguments: argparse.Namespace, statements: int) -> None:
    if statements != 1:
        raise InvalidInput("--explain: expected exactly one statement")
    if arguments.output is not None or arguments.format not in (None, "table", "json"):
        raise InvalidInput("--explain: expected no --output, and the format table or json")


def _read_statements(arguments: argparse.Namespace) -> str:
    if (arguments.statement is None) == (arguments.file is None):
        raise InvalidInput("expected either a statement or --file")
    try:
        if arguments.file is not None:
            return Path(arguments.file).read_text(encoding="utf-8")
        return sys.stdin.read() if arguments.statement == "-" else str(arguments.statement)
    except UnicodeDecodeError as error:
        where = "stdin" if arguments.file is None else f"--file {arguments.file}"
        raise InvalidInput(f"{where}: not UTF-8 (byte {error.start})") from None


def _set_utc_time_zone() -> None:
    """Set the process's time zone to UTC, because PySpark converts timestamps to the local time zone."""
    os.environ["TZ"] = "UTC"
    time.tzset()


# Prompt


def _run_prompt(session: SparkSession, arguments: argparse.Namespace) -> None:
    r"""Run the statements that the user enters, until \\q or the end of the input."""
    from chronik.cli.pipeline.prompt import HELP, LineEditor, SqlPrompt, TableCatalog

    names = TableCatalog(parse_bootstrap_access(arguments), arguments.table_root, parse_storage_options(arguments))

    def run(statement: str) -> None:
        began = time.monotonic()
        try:
            _run(session, statement, arguments, None, prune=False)
        except KeyboardInterrupt:
            _cancel_queries(session)
            raise
        finally:
            sys.stdout.flush()
        if arguments.timing:
            print(f"{time.monotonic() - began:.2f} s", file=sys.stderr)

    with LineEditor(lambda: loop.pending_input, names.tables, names.columns) as lines:
        loop = SqlPrompt(lines.read, run, lambda text: print(text, file=sys.stderr), lines.add_to_history)
        print(HELP, file=sys.stderr)
        loop.run()


def _cancel_queries(session: SparkSession) -> None:
    """Cancel the session's running queries on the Spark Connect server."""
    if hasattr(session, "interruptAll"):
        session.interruptAll()
    else:
        session.sparkContext.cancelAllJobs()


# Spark sessions


def _open_session(arguments: argparse.Namespace) -> SparkSession:
    from chronik.pipeline.spark.masters import is_connect_master, resolve_master
    from chronik.pipeline.spark.runtime import session

    master = resolve_master(arguments.master)
    if master is not None and is_connect_master(master):
        return session(master, **{"spark.sql.session.timeZone": "UTC"})  # the server may have another default
    url = None if arguments.no_server else _find_or_start_server(master)
    if url is None:
        print(STARTING_EMBEDDED, file=sys.stderr)
    return session(url or master)


def _find_or_start_server(master: str | None) -> str | None:
    """Return the address of a Spark Connect server, starting one if necessary; None if it cannot be started."""
    from chronik.pipeline.spark.connect_server import ServerStartError, ensure_server, find_matching_server
    from chronik.pipeline.spark.environment_checks import get_installed_version

    if get_installed_version("grpcio") is None:
        print("pyspark[connect] is not installed: every query starts its own Spark", file=sys.stderr)
        return None
    server = find_matching_server(master)
    if server is None:
        print(STARTING, file=sys.stderr)
        try:
            server = ensure_server(master)
        except ServerStartError as error:
            print(f"{' '.join(str(error).split())}; continuing without a server", file=sys.stderr)
            return None
    return server.url


# Output


def _run(
    spark: SparkSession, statement: str, arguments: argparse.Namespace, output: ResultOutput | None, *, prune: bool
) -> None:
    from pyspark.errors import PySparkException

    from chronik.pipeline.query.error_summary import SqlFailedError, summarize_error
    from chronik.pipeline.query.sql import query
    from chronik.pipeline.spark.jvm import raise_if_jvm_ended

    try:
        with raise_if_jvm_ended(spark):
            frame = query(
                spark,
                statement,
                parse_bootstrap_access(arguments),
                arguments.table_root,
                prune=prune,
                executes_once=prune,
                storage_options=parse_storage_options(arguments),
                registry=parse_registry_argument(arguments),
            )
            if output is None:
                _print_rows(frame, arguments, sys.stdout)
            else:
                _write_file(frame, output)
    except PySparkException as error:
        raise SqlFailedError(summarize_error(str(error))) from error


def _explain(spark: SparkSession, statement: str, arguments: argparse.Namespace) -> None:
    from pyspark.errors import PySparkException

    from chronik.cli.output import print_json
    from chronik.cli.pipeline.query_explanation import format_explanation
    from chronik.pipeline.query.error_summary import SqlFailedError, summarize_error
    from chronik.pipeline.query.explanation import explain_query
    from chronik.pipeline.spark.jvm import raise_if_jvm_ended

    try:
        with raise_if_jvm_ended(spark):
            found = explain_query(
                spark,
                statement,
                parse_bootstrap_access(arguments),
                arguments.table_root,
                storage_options=parse_storage_options(arguments),
                registry=parse_registry_argument(arguments),
            )
    except PySparkException as error:
        raise SqlFailedError(summarize_error(str(error))) from error
    if arguments.format == "json":
        print_json(found.to_json())
    else:
        print(format_explanation(found))


def _write_file(frame: DataFrame, output: ResultOutput) -> None:
    from chronik.cli.pipeline.result_files import write_result
    from chronik.pipeline.journal.progress_bar import ProgressBar
    from chronik.pipeline.query.results import read_record_batches

    with ProgressBar(output.path.name, delay_s=PROGRESS_DELAY_SECONDS) as bar:
        count = write_result(output.path, output.format, read_record_batches(frame), bar.update)
    print(f"wrote {pluralize(count, 'row')} to {output.path}", file=sys.stderr)


def _print_rows(frame: DataFrame, arguments: argparse.Namespace, out: TextIO) -> None:
    from chronik.cli.row_formats import write_csv, write_json, write_table

    names: Sequence[str] = frame.columns
    if arguments.format in (None, "table"):
        with _show_progress(frame.sparkSession):
            rows: Iterable[Sequence[Any]] = frame.limit(arguments.rows + 1).collect()
        if not write_table(names, rows, out, arguments.rows):
            print(
                f"showing the first {pluralize(arguments.rows, 'row')}; --rows N shows more, --format csv or json all",
                file=sys.stderr,
            )
    else:
        write = write_csv if arguments.format == "csv" else write_json
        write(names, frame.toLocalIterator(prefetchPartitions=True), out)


@contextmanager
def _show_progress(spark: SparkSession) -> Iterator[None]:
    """Show the query's progress on a terminal. A Spark Connect server reports it every two seconds."""
    from chronik.pipeline.journal.progress_bar import ProgressBar

    if not sys.stderr.isatty() or not type(spark).__module__.startswith("pyspark.sql.connect."):
        yield
        return
    with ProgressBar("query", unit="tasks") as bar:
        handler = _create_progress_handler(bar)
        spark.registerProgressHandler(handler)
        try:
            yield
            if bar.total is not None:
                bar.update(bar.total)  # tasks that Spark skips are never reported as done
        finally:
            spark.removeProgressHandler(handler)


def _create_progress_handler(bar: ProgressBar) -> Callable[..., None]:
    def handler(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        known = list(stages or ())
        if known:
            bar.update(sum(each.num_completed_tasks for each in known), sum(each.num_tasks for each in known))

    return handler
