"""The command `chronik pipeline sql`: a persistent server, rows in three formats, and errors in one line."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from chronik.cli.main import main
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.pipeline.spark.connect_server import find_running_server, stop_server
from chronik.pipeline.tables.catalog import open_or_create_table
from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.storage import table_uri
from chronik.pipeline.tables.topic_table import TableSpec
from chronik.testing import Broker
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.pipeline.table_fixtures import write_task_output

pytestmark = pytest.mark.xdist_group("jvms")

SECONDS_MAX = 300.0
NOON_MS = 1_714_564_800_000

IN_ONE_PROCESS = """
import contextlib, io, json, sys
from chronik.cli.main import main
for words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""
"""Runs several commands in one process, since each process would spend a second importing PySpark."""


@dataclass(frozen=True)
class CommandResult:
    """The result of a command."""

    code: int
    out: str
    err: str


class Shell:
    """A runner of `chronik pipeline sql` commands."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self._common = ["-b", broker.bootstrap, "--table-root", "tables"]
        self._directory = directory
        self._environment = os.environ | {"XDG_CACHE_HOME": str(directory)}

    def sql(self, *words: str) -> CommandResult:
        command = [sys.executable, "-m", "chronik", *self._words(words)]
        result = self._run(command, None)
        return CommandResult(result.returncode, result.stdout, result.stderr)

    def sql_each(self, *commands: tuple[str, ...]) -> list[CommandResult]:
        result = self._run([sys.executable, "-c", IN_ONE_PROCESS], json.dumps([self._words(each) for each in commands]))
        assert result.returncode == 0, result.stderr
        return [CommandResult(*json.loads(line)) for line in result.stdout.splitlines()]

    @contextmanager
    def prompt(self) -> Iterator[PseudoTerminal]:
        """Run the command on a pseudoterminal."""
        environment = self._environment | {"XDG_STATE_HOME": str(self._directory / "state"), "TERM": "xterm"}
        with PseudoTerminal(
            [sys.executable, "-m", "chronik", *self._words(())], environment, self._directory
        ) as typing:
            yield typing

    def _words(self, words: tuple[str, ...]) -> list[str]:
        return ["pipeline", "sql", *words, *self._common]

    def _run(self, command: list[str], stdin: str | None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            cwd=self._directory,
            env=self._environment,
            timeout=SECONDS_MAX,
        )


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def shell(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A topic with three records of which none has landed in its decoded table, and a Spark server that the first query
    has started.
    """
    directory = tmp_path_factory.mktemp("sql")
    create_orders(broker, str(directory / "tables"))
    shell = Shell(broker, directory)
    try:
        first = shell.sql("SELECT count(*) AS orders FROM orders")
        assert (first.code, first.out) == (0, "orders\n     3\n"), first.err
        assert first.err.startswith("starting a Spark server")
        assert len(first.err.splitlines()) == 1
        yield shell
    finally:
        stop_server(directory / "chronik" / "connect")


def create_orders(broker: Broker, root: str) -> None:
    broker.create_topic("orders")
    values = [{"n": 1, "text": "a,b"}, {"n": 2, "text": None}, {"n": 3, "text": "ü" * 100}]
    with broker.cluster() as cluster:
        records = [
            OutgoingRecord(json.dumps(value).encode(), key=b"k", timestamp=NOON_MS + number)
            for number, value in enumerate(values)
        ]
        Producer(cluster).send("orders", records)
        (topic,) = cluster.metadata(["orders"]).topics
    from chronik.ids import format_id
    from chronik.pipeline.tables.values.row_decoder import infer_statistics

    spec = TableSpec("orders", format_id(topic.topic_id), TableKind.DECODED)
    table = open_or_create_table(table_uri(root, "orders"), spec)
    table.add_columns(infer_statistics([b'{"n": 1, "text": "x"}']))


def test_running_server_serves_later_queries(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "two.sql").write_text("SELECT max(n) AS n FROM orders; -- the largest\nSELECT 'x;y' AS t;")
    result = shell.sql("--file", str(tmp_path / "two.sql"))
    assert (result.code, result.out, result.err) == (0, "n\n3\nt\nx;y\n", "")


def test_sql_file_can_create_views(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "own.sql").write_text(
        "CREATE TEMP VIEW large AS SELECT n FROM orders WHERE n > 1; SELECT 1 AS one; SELECT count(*) AS n FROM large;"
        " EXECUTE IMMEDIATE 'SELECT min(n) AS n FROM orders';"
    )
    result = shell.sql("--file", str(tmp_path / "own.sql"), "--format", "csv")
    assert (result.code, result.out.split(), result.err) == (0, ["one", "1", "n", "2", "n", "1"], "")


def test_rows_are_printed_as_table_json_or_csv(shell: Shell) -> None:
    statement = "SELECT n, text, _key, _timestamp FROM orders ORDER BY n"
    limited, json_lines, comma_separated = shell.sql_each(
        (statement, "--rows", "2"), (statement, "--json"), (statement, "--format", "csv")
    )
    assert limited.out.splitlines() == [
        "n  text  _key  _timestamp",
        "1  a,b   k     2024-05-01T12:00:00Z",
        "2  -     k     2024-05-01T12:00:00.001000Z",
    ]
    assert limited.err == "showing the first 2 rows; --rows N shows more, --format csv or json all\n"
    first, *_, last = map(json.loads, json_lines.out.splitlines())
    assert first == {"n": 1, "text": "a,b", "_key": "k", "_timestamp": "2024-05-01T12:00:00Z"}
    assert (last["n"], last["text"]) == (3, "ü" * 100)
    headings, *rows = csv.reader(StringIO(comma_separated.out))
    assert headings == ["n", "text", "_key", "_timestamp"]
    assert [row[:2] for row in rows] == [["1", "a,b"], ["2", ""], ["3", "ü" * 100]]
    assert json_lines.err == comma_separated.err == ""


def test_rows_are_written_to_a_file(shell: Shell) -> None:
    csv_file, failed = shell.sql_each(
        ("SELECT n, text, _timestamp FROM orders ORDER BY n DESC", "--output", "rows.csv"),
        ("SELECT 1 / (n - 1) FROM orders", "--output", "rows.csv"),
    )
    assert (csv_file.code, csv_file.out, csv_file.err) == (0, "", "wrote 3 rows to rows.csv\n")
    assert (failed.code, failed.out) == (1, "")
    assert failed.err.startswith("chronik: [DIVIDE_BY_ZERO]")
    with (shell._directory / "rows.csv").open(encoding="utf-8", newline="") as file:
        headings, *rows = csv.reader(file)
    assert headings == ["n", "text", "_timestamp"]
    assert rows[1:] == [["2", "", "2024-05-01T12:00:00.001000Z"], ["1", "a,b", "2024-05-01T12:00:00Z"]]


def test_explain_shows_what_a_query_reads(shell: Shell) -> None:
    """The server plans the query with a data source of Python."""
    directory = shell._directory / "tables" / "many"
    table = open_or_create_table(str(directory), TableSpec("many", "AAAAAAAAAAAAAAAAAAAAAQ"))
    spans = [PartitionRange(0, 10 * number, 10 * number + 10) for number in range(16)]
    table.commit([write_task_output(directory, span) for span in spans])
    query = "SELECT count(*) AS n FROM many_cold WHERE _offset >= 155"
    as_json, as_text, rows, small, command = shell.sql_each(
        ("--explain", "--json", query),
        ("--explain", query),
        (query, "--format", "csv"),
        ("--explain", "SELECT * FROM orders WHERE n = 1"),
        ("--explain", "CREATE TABLE copy AS SELECT * FROM orders"),
    )
    assert (as_json.code, as_json.err) == (0, "")
    found = json.loads(as_json.out)
    assert found["reads_all_because"] is None
    (view,) = found["views"]
    assert view["conditions"] == [["_offset >= 155"]]
    assert (view["landed"]["files"], view["landed"]["rows"]) == (1, 10)
    assert {name: each["files"] for name, each in view["landed"]["skipped"].items()} == {
        "partition": 0,
        "statistics": 15,
    }
    assert as_text.out.splitlines()[1].split()[:4] == ["many_cold", "landed", "1", "10"]
    assert rows.out.split() == ["n", "5"], rows.err
    assert small.out.splitlines()[-1] == "nothing is skipped: there are few files and records"
    assert (command.code, command.err.startswith("chronik: only a query can be explained")) == (1, True)


def test_errors_are_printed_in_one_line(shell: Shell) -> None:
    expected_errors = {
        "SELEC 1": r"[PARSE_SYNTAX_ERROR]",
        "SELECT count(*) FROM nobody": "[TABLE_OR_VIEW_NOT_FOUND] The table or view `nobody` cannot be found",
        "SELECT m FROM orders": "[UNRESOLVED_COLUMN.WITH_SUGGESTION]",
        "SELECT 1 / (n - 1) FROM orders": "[DIVIDE_BY_ZERO]",
    }
    results = shell.sql_each(*((each,) for each in expected_errors))
    for result, expected in zip(results, expected_errors.values(), strict=True):
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith(f"chronik: {expected}")
        assert len(result.err.splitlines()) == 1
        if "UNRESOLVED" in expected:
            assert "`text`" in result.err, "columns that the statement does not name are suggested too"


def test_field_of_raw_topic_is_explained(shell: Shell, broker: Broker) -> None:
    broker.create_topic("events")
    plain, nested = shell.sql_each(
        ("SELECT e.customer, _offset FROM events e",), ("SELECT _value.customer FROM events",)
    )
    for result in (plain, nested):
        assert (result.code, len(result.err.splitlines())) == (1, 1)
        assert result.err.startswith("chronik: there is no column ")
        assert "events has not landed, so its values are bytes in column _value" in result.err
    assert "'$.customer'" in plain.err


def test_prompt_runs_statements_and_completes_names(shell: Shell) -> None:
    with shell.prompt() as prompt:
        prompt.wait_for_output("sql> ")
        prompt.type("SELECT max(n) AS most\r")
        prompt.wait_for_output("...> ")
        prompt.type("FROM ord\t\r;\r")  # a second tab would list the alternatives
        prompt.wait_for_output("most\r\n   3\r\n")
        prompt.wait_for_output("sql> ")
        prompt.type("SELECT m FROM orders;\r")
        prompt.wait_for_output("[UNRESOLVED_COLUMN")
        prompt.wait_for_output("sql> ")
        prompt.type("\x1b[A\x1b[A\r")  # two entries back in the history
        prompt.wait_for_output("most\r\n   3\r\n")
        prompt.wait_for_output("sql> ")
        prompt.type("\\q\r")
        assert prompt.wait_for_exit() == 0
    history = (shell._directory / "state" / "chronik" / "sql_history").read_text()
    assert "SELECT max(n) AS most FROM orders" in history


def test_query_runs_on_given_connect_server(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = shell._directory / "chronik" / "connect"
    server = find_running_server(directory)
    assert server is not None
    result = shell.sql("SELECT sum(n) FROM orders_hot", "--master", server.url, "--timing")
    assert (result.code, result.out.split()) == (0, ["sum(n)", "6"]), result.err
    assert "to start Spark" in result.err


def test_file_that_is_not_utf8_is_rejected(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "latin.sql").write_bytes("SELECT 'Größe'".encode("latin-1"))
    assert main(["pipeline", "sql", "--file", str(tmp_path / "latin.sql")]) == 1
    output = capsys.readouterr().err
    assert output == f"chronik: --file {tmp_path / 'latin.sql'}: not UTF-8 (byte 10)\n"


def test_missing_or_duplicate_statement_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["pipeline", "sql"], ["pipeline", "sql", "SELECT 1", "--file", "x"], ["pipeline", "sql", " ; -- x"]):
        assert main(words) == 1
        assert "statement" in capsys.readouterr().err
