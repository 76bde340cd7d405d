"""`chronik pipeline sql`: a statement over topics, each as landed rows and the live tail, and its rows on stdout."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from chronik.cli.arguments import WrongInput, add_bootstrap_argument, add_debug_argument, bootstrap_of, positive
from chronik.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from chronik.pipeline.journal.bars import Bar

FORMATS = ("table", "json", "csv")

STARTING = "starting a Spark that stays for the next queries (chronik pipeline server stop ends it) …"

STARTING_OWN = "starting a Spark, which ends with this command …"

ROWS_SHOWN = 100
"""Rows of a table, unless more are asked for: as many as people read."""


def add_arguments(actions: Any) -> None:
    parser: argparse.ArgumentParser = actions.add_parser(
        "sql",
        help="query topics: what has landed and the live tail, as one",
        description="Each topic is a view: orders is all of it, orders_cold what has landed, orders_hot the rest."
        " A name with dots or dashes goes in backticks, or with _ instead. Without a statement: a prompt.",
    )
    parser.set_defaults(run=run)
    parser.add_argument("statement", nargs="?", metavar="STATEMENT", help="SQL, as Spark takes it; - reads stdin")
    parser.add_argument("-f", "--file", metavar="FILE", help="statements, with ; between them")
    add_bootstrap_argument(parser)
    parser.add_argument("--table-root", metavar="DIR", default="tables", help="where tables are (default: %(default)s)")
    parser.add_argument("--format", choices=FORMATS, default="table", help="json: a line for each row")
    parser.add_argument("--json", action="store_const", dest="format", const="json", help="as --format json")
    parser.add_argument(
        "-n", "--rows", type=positive, metavar="N", default=ROWS_SHOWN, help="how many are shown (default: %(default)s)"
    )
    parser.add_argument(
        "--master",
        metavar="URL",
        help="spark://HOST:PORT, local[N], or sc://HOST:PORT of a Spark Connect server (default: one that is started"
        " when it is needed, and stays)",
    )
    parser.add_argument("--no-server", action="store_true", help="use a Spark in this process, which ends with it")
    parser.add_argument("--timing", action="store_true", help="say on stderr how long it took")
    add_debug_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.query.tokens import statements
    from chronik.pipeline.spark.doctor import require

    is_asked = arguments.statement is None and arguments.file is None and sys.stdin.isatty()
    found = [] if is_asked else statements(_text(arguments))
    if not found and not is_asked:
        raise WrongInput("there is no statement: chronik pipeline sql 'SELECT …', or --file")
    require("pyspark", "pyarrow", "deltalake")
    _times_are_utc()
    # PySpark's own logger shows every error with the whole stack of the JVM.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    began = time.monotonic()
    session = _session(arguments)
    ready = time.monotonic()
    try:
        if is_asked:
            _ask(session, arguments)
        for statement in found:
            _run(session, statement, arguments, prune=len(found) == 1)
        if arguments.timing and not is_asked:
            print(f"{time.monotonic() - ready:.2f} s, after {ready - began:.2f} s to get a Spark", file=sys.stderr)
    finally:
        session.stop()  # or a server would go on with a query that Ctrl-C has ended here
    return 0


def _text(arguments: argparse.Namespace) -> str:
    if (arguments.statement is None) == (arguments.file is None):
        raise WrongInput("expected either a statement or --file")
    try:
        if arguments.file is not None:
            return Path(arguments.file).read_text(encoding="utf-8")
        return sys.stdin.read() if arguments.statement == "-" else str(arguments.statement)
    except UnicodeDecodeError as error:
        where = "stdin" if arguments.file is None else f"--file {arguments.file}"
        raise WrongInput(f"{where}: not UTF-8 (byte {error.start})") from None


def _times_are_utc() -> None:
    """PySpark hands out times in the process's own zone; ours are in the session's."""
    os.environ["TZ"] = "UTC"
    time.tzset()


# A prompt


def _ask(session: SparkSession, arguments: argparse.Namespace) -> None:
    """Runs what is typed until \\q, or the end of the input."""
    from chronik.cli.pipeline.prompt.lines import Lines
    from chronik.cli.pipeline.prompt.loop import HELP, Loop
    from chronik.cli.pipeline.prompt.names import Names

    names = Names(bootstrap_of(arguments), arguments.table_root)

    def run(statement: str) -> None:
        began = time.monotonic()
        try:
            _run(session, statement, arguments, prune=False)
        except KeyboardInterrupt:
            _stop_queries(session)
            raise
        finally:
            sys.stdout.flush()
        if arguments.timing:
            print(f"{time.monotonic() - began:.2f} s", file=sys.stderr)

    with Lines(lambda: loop.typed, names.tables, names.columns) as lines:
        loop = Loop(lines.read, run, lambda text: print(text, file=sys.stderr), lines.remember)
        print(HELP, file=sys.stderr)
        loop.run()


def _stop_queries(session: SparkSession) -> None:
    """Ends on the server what nobody waits for any more."""
    if hasattr(session, "interruptAll"):
        session.interruptAll()
    else:
        session.sparkContext.cancelAllJobs()


# Where Spark is


def _session(arguments: argparse.Namespace) -> SparkSession:
    from chronik.pipeline.spark.masters import chosen_master, is_connect
    from chronik.pipeline.spark.runtime import session

    master = chosen_master(arguments.master)
    if master is not None and is_connect(master):
        return session(master, **{"spark.sql.session.timeZone": "UTC"})  # whoever started it may have chosen another
    url = None if arguments.no_server else _server_url(master)
    if url is None:
        print(STARTING_OWN, file=sys.stderr)
    return session(url or master)


def _server_url(master: str | None) -> str | None:
    """Returns the address of a server that stays; None when there can be none, which only costs time."""
    from chronik.pipeline.spark.connect import ServerFailed, ensure_server, fitting_server
    from chronik.pipeline.spark.doctor import installed_version

    if installed_version("grpcio") is None:
        print("without pyspark[connect] every query starts a Spark of its own", file=sys.stderr)
        return None
    server = fitting_server(master)
    if server is None:
        print(STARTING, file=sys.stderr)
        try:
            server = ensure_server(master)
        except ServerFailed as error:
            print(f"{' '.join(str(error).split())}; going on without a server", file=sys.stderr)
            return None
    return server.url


# What is printed


def _run(spark: SparkSession, statement: str, arguments: argparse.Namespace, *, prune: bool) -> None:
    from pyspark.errors import PySparkException

    from chronik.pipeline.query.failures import SqlFailed, told
    from chronik.pipeline.query.sql import query

    try:
        frame = query(spark, statement, bootstrap_of(arguments), arguments.table_root, prune=prune)
        _print(frame, arguments, sys.stdout)
    except PySparkException as error:
        raise SqlFailed(told(str(error))) from error


def _print(frame: DataFrame, arguments: argparse.Namespace, out: TextIO) -> None:
    from chronik.cli.row_formats import write_csv, write_json, write_table

    names: Sequence[str] = frame.columns
    if arguments.format == "table":
        with _progress_shown(frame.sparkSession):
            rows: Iterable[Sequence[Any]] = frame.limit(arguments.rows + 1).collect()
        if not write_table(names, rows, out, arguments.rows):
            print(
                f"the first {counted(arguments.rows, 'row')}; --rows N shows more, --format csv or json all",
                file=sys.stderr,
            )
    else:
        write = write_json if arguments.format == "json" else write_csv
        write(names, frame.toLocalIterator(prefetchPartitions=True), out)


@contextmanager
def _progress_shown(spark: SparkSession) -> Iterator[None]:
    """Shows on a terminal how many tasks are done, as a Connect server reports it every two seconds."""
    from chronik.pipeline.journal.bars import Bar

    if not sys.stderr.isatty() or not type(spark).__module__.startswith("pyspark.sql.connect."):
        yield
        return
    with Bar("query", unit="tasks") as bar:
        handler = _to_bar(bar)
        spark.registerProgressHandler(handler)
        try:
            yield
            if bar.total is not None:
                bar.reach(bar.total)  # tasks whose work turned out to be unnecessary are never reported as done
        finally:
            spark.removeProgressHandler(handler)


def _to_bar(bar: Bar) -> Callable[..., None]:
    def handler(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        known = list(stages or ())
        if known:
            bar.reach(sum(each.num_completed_tasks for each in known), sum(each.num_tasks for each in known))

    return handler
