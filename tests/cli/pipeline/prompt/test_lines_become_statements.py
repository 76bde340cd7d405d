"""The prompt of `chronik pipeline sql` without a terminal and without Spark: lines in, statements out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from chronik.cli.pipeline.prompt.completing import completions, quoted
from chronik.cli.pipeline.prompt.lines import Lines, history_file
from chronik.cli.pipeline.prompt.loop import FIRST, HELP, MORE, Loop, taken_from
from chronik.errors import ChronikError


class Session:
    """Who types, and what came of it."""

    def __init__(self, *typed: str | type[BaseException]) -> None:
        self._typed = list(typed)
        self.prompts: list[str] = []
        self.ran: list[str] = []
        self.told: list[str] = []
        self.remembered: list[str] = []
        self.failing: dict[str, BaseException] = {}

    def go(self) -> Session:
        Loop(self.read, self.run, self.told.append, self.remembered.append).run()
        return self

    def read(self, prompt: str) -> str:
        self.prompts.append(prompt)
        if not self._typed:
            raise EOFError
        line = self._typed.pop(0)
        if isinstance(line, str):
            return line
        raise line

    def run(self, statement: str) -> None:
        self.ran.append(statement)
        if statement in self.failing:
            raise self.failing[statement]


def test_a_statement_ends_with_a_semicolon() -> None:
    session = Session("SELECT 1;", "SELECT", "  2", ";").go()
    assert session.ran == ["SELECT 1", "SELECT\n  2"]
    assert session.prompts == [FIRST, FIRST, MORE, MORE, FIRST]
    assert session.remembered == ["SELECT 1;", "SELECT\n  2\n;"]


def test_two_on_a_line_are_two_and_what_follows_waits() -> None:
    session = Session("SELECT 1; SELECT 2; SELECT", "3;").go()
    assert session.ran == ["SELECT 1", "SELECT 2", "SELECT\n3"]


@pytest.mark.parametrize(
    "typed",
    [
        "SELECT ';'",
        "SELECT `a;b`",
        "SELECT 1 -- ;",
        "SELECT /* ; */ 1",
        "SELECT 'open ;",
        "SELECT /* ;",
        'SELECT ";',
        "BEGIN SELECT 1;",
        "BEGIN IF TRUE THEN SELECT 1; END IF;",
        "BEGIN BEGIN SELECT 1; END;",
    ],
)
def test_a_semicolon_within_something_ends_nothing(typed: str) -> None:
    assert taken_from(f"{typed}\n").whole == []


def test_what_was_left_open_ends_when_it_is_closed() -> None:
    assert taken_from("SELECT 'a ;\n b';\n").whole == ["SELECT 'a ;\n b'"]
    assert taken_from("BEGIN SELECT 1; SELECT 2; END;\n").whole == ["BEGIN SELECT 1; SELECT 2; END;"]
    assert taken_from("SELECT 1; -- done\n") == (["SELECT 1"], "-- done\n")


def test_an_error_is_one_line_and_the_prompt_goes_on() -> None:
    session = Session("bad; SELECT 2;", "SELECT 3;")
    session.failing["bad"] = ChronikError("it is\n  wrong")
    session.go()
    assert session.ran == ["bad", "SELECT 3"], "what stands behind a failure is not run"
    assert session.told[0] == "it is wrong"


def test_ctrl_c_forgets_what_was_typed_or_stops_what_runs() -> None:
    session = Session("SELECT", KeyboardInterrupt, "SELECT 1;", "SELECT 2;")
    session.failing["SELECT 1"] = KeyboardInterrupt()
    session.go()
    assert session.ran == ["SELECT 1", "SELECT 2"]
    assert "stopped" in session.told
    assert session.prompts[:3] == [FIRST, MORE, FIRST]


@pytest.mark.parametrize("word", ["\\q", "quit", "exit;", "\\q "])
def test_it_ends_when_asked_to(word: str) -> None:
    assert Session("SELECT 1;", word, "SELECT 2;").go().ran == ["SELECT 1"]


def test_within_a_statement_quit_is_a_name() -> None:
    assert Session("SELECT", "quit", "FROM x;").go().ran == ["SELECT\nquit\nFROM x"]


def test_commands_begin_with_a_backslash() -> None:
    session = Session("", "\\d", "\\d orders", "\\?", "\\x").go()
    assert session.ran == ["SHOW TABLES", "DESCRIBE orders"]
    assert session.told[:2] == [HELP, "\\x is not known; \\? says what is"]


# Completion

COLUMNS = {"orders": ["_offset", "customer", "euros"], "eu.orders": ["id"]}
TABLES = [*COLUMNS, "payments"]


def completed(before: str, word: str) -> list[str]:
    def columns(table: str) -> Iterable[str]:
        return COLUMNS.get(table, [])

    return completions(before, word, TABLES, columns)


def test_tables_come_after_from() -> None:
    assert completed("SELECT * FROM ", "") == ["orders", "`eu.orders`", "payments"]
    assert completed("SELECT * FROM ", "o") == ["orders"]
    assert completed("SELECT * FROM ", "`eu") == ["`eu.orders`"]
    assert completed("\\d ", "pay") == ["payments"]
    assert completed("SELECT * FROM orders JOIN ", "P") == ["payments"]


def test_columns_are_those_of_the_tables_that_are_named() -> None:
    assert completed("SELECT * FROM orders WHERE ", "cu") == ["customer", "current_timestamp("]
    assert "customer" not in completed("SELECT ", "cu")
    assert completed("SELECT * FROM orders WHERE ", "") == ["_offset", "customer", "euros"]
    assert completed("SELECT ", "_of") == ["_offset"], "all topics have some"
    assert completions("SELECT ", "cu", TABLES, lambda table: COLUMNS.get(table, []), " FROM orders")[0] == "customer"
    assert completed("SELECT ", "orders.e") == ["orders.euros"]
    assert completed("SELECT ", "nobody.e") == []


def test_keywords_are_written_as_the_word_began() -> None:
    assert completed("", "SEL") == ["SELECT"]
    assert completed("", "sel") == ["select"]
    assert completed("SELECT ", "coun") == ["count("]


def test_names_that_need_backticks_get_them() -> None:
    assert [quoted(each) for each in ("orders", "eu.orders", "a`b", "1a")] == [
        "orders",
        "`eu.orders`",
        "`a``b`",
        "`1a`",
    ]


# History


def test_history_is_kept_in_the_users_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readline = pytest.importorskip("readline")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    readline.clear_history()
    with Lines(str, list, lambda _: ()) as lines:
        lines.remember("SELECT 1;")
        lines.remember("SELECT 1;")
        lines.remember("SELECT\n  2;")
        lines.remember("SELECT 3 -- why\n;")
    assert history_file() == tmp_path / "chronik" / "sql_history"
    assert history_file().stat().st_mode & 0o077 == 0
    kept = [line for line in history_file().read_text().splitlines() if not line.startswith("_HiStOrY")]
    assert kept == ["SELECT 1;", "SELECT 2;", "SELECT 3 -- why", ";"]
    readline.clear_history()
    with Lines(str, list, lambda _: ()):
        assert readline.get_history_item(1) == "SELECT 1;"
    readline.clear_history()


def test_a_state_folder_that_cannot_be_made_costs_no_more_than_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with Lines(str, list, lambda _: ()) as lines:
        lines.remember("SELECT 1;")
