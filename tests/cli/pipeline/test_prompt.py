"""The SQL prompt without a terminal and without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from chronik.cli.pipeline.prompt import (
    CONTINUATION_PROMPT,
    HELP,
    PROMPT,
    LineEditor,
    SqlPrompt,
    complete_word,
    get_history_file_path,
    quote_identifier,
    split_input,
)
from chronik.errors import ChronikError


class PromptSession:
    """A scripted user session and its effects."""

    def __init__(self, *typed: str | type[BaseException]) -> None:
        self._typed = list(typed)
        self.prompts: list[str] = []
        self.ran: list[str] = []
        self.messages: list[str] = []
        self.remembered: list[str] = []
        self.failing: dict[str, BaseException] = {}

    def run_loop(self) -> PromptSession:
        SqlPrompt(self.read, self.run, self.messages.append, self.remembered.append).run()
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


def test_statement_ends_with_semicolon() -> None:
    session = PromptSession("SELECT 1;", "SELECT", "  2", ";").run_loop()
    assert session.ran == ["SELECT 1", "SELECT\n  2"]
    assert session.prompts == [PROMPT, PROMPT, CONTINUATION_PROMPT, CONTINUATION_PROMPT, PROMPT]
    assert session.remembered == ["SELECT 1;", "SELECT\n  2\n;"]


def test_line_with_several_statements_is_split() -> None:
    session = PromptSession("SELECT 1; SELECT 2; SELECT", "3;").run_loop()
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
def test_semicolon_in_string_comment_or_block_does_not_end_statement(typed: str) -> None:
    assert split_input(f"{typed}\n").statements == []


def test_statement_ends_after_string_or_block_is_closed() -> None:
    assert split_input("SELECT 'a ;\n b';\n").statements == ["SELECT 'a ;\n b'"]
    assert split_input("BEGIN SELECT 1; SELECT 2; END;\n").statements == ["BEGIN SELECT 1; SELECT 2; END;"]
    assert split_input("SELECT 1; -- done\n") == (["SELECT 1"], "-- done\n")


def test_failed_statement_prints_one_line_and_prompt_continues() -> None:
    session = PromptSession("bad; SELECT 2;", "SELECT 3;")
    session.failing["bad"] = ChronikError("it is\n  wrong")
    session.run_loop()
    assert session.ran == ["bad", "SELECT 3"], "statements after a failure are discarded"
    assert session.messages[0] == "it is wrong"


def test_ctrl_c_clears_input_or_cancels_query() -> None:
    session = PromptSession("SELECT", KeyboardInterrupt, "SELECT 1;", "SELECT 2;")
    session.failing["SELECT 1"] = KeyboardInterrupt()
    session.run_loop()
    assert session.ran == ["SELECT 1", "SELECT 2"]
    assert "cancelled" in session.messages
    assert session.prompts[:3] == [PROMPT, CONTINUATION_PROMPT, PROMPT]


@pytest.mark.parametrize("word", ["\\q", "quit", "exit;", "\\q "])
def test_quit_commands_end_prompt(word: str) -> None:
    assert PromptSession("SELECT 1;", word, "SELECT 2;").run_loop().ran == ["SELECT 1"]


def test_quit_inside_statement_is_an_identifier() -> None:
    assert PromptSession("SELECT", "quit", "FROM x;").run_loop().ran == ["SELECT\nquit\nFROM x"]


def test_backslash_commands_run() -> None:
    session = PromptSession("", "\\d", "\\d orders", "\\?", "\\x").run_loop()
    assert session.ran == ["SHOW TABLES", "DESCRIBE orders"]
    assert session.messages[:2] == [HELP, "unknown command \\x; use \\? for help"]


# Completion

COLUMNS = {"orders": ["_offset", "customer", "euros"], "eu.orders": ["id"]}
TABLES = [*COLUMNS, "payments"]


def complete(before: str, word: str) -> list[str]:
    def columns(table: str) -> Iterable[str]:
        return COLUMNS.get(table, [])

    return complete_word(before, word, TABLES, columns)


def test_tables_are_completed_after_from() -> None:
    assert complete("SELECT * FROM ", "") == ["orders", "`eu.orders`", "payments"]
    assert complete("SELECT * FROM ", "o") == ["orders"]
    assert complete("SELECT * FROM ", "`eu") == ["`eu.orders`"]
    assert complete("\\d ", "pay") == ["payments"]
    assert complete("SELECT * FROM orders JOIN ", "P") == ["payments"]


def test_columns_of_named_tables_are_completed() -> None:
    assert complete("SELECT * FROM orders WHERE ", "cu") == ["customer", "current_timestamp("]
    assert "customer" not in complete("SELECT ", "cu")
    assert complete("SELECT * FROM orders WHERE ", "") == ["_offset", "customer", "euros"]
    assert complete("SELECT ", "_of") == ["_offset"], "common columns"
    assert complete_word("SELECT ", "cu", TABLES, lambda table: COLUMNS.get(table, []), " FROM orders")[0] == "customer"
    assert complete("SELECT ", "orders.e") == ["orders.euros"]
    assert complete("SELECT ", "nobody.e") == []


def test_completed_keywords_keep_case_of_input() -> None:
    assert complete("", "SEL") == ["SELECT"]
    assert complete("", "sel") == ["select"]
    assert complete("SELECT ", "coun") == ["count("]


def test_special_names_are_quoted_with_backticks() -> None:
    assert [quote_identifier(each) for each in ("orders", "eu.orders", "a`b", "1a")] == [
        "orders",
        "`eu.orders`",
        "`a``b`",
        "`1a`",
    ]


# History


def test_history_is_saved_in_xdg_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readline = pytest.importorskip("readline")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    readline.clear_history()
    with LineEditor(str, list, lambda _: ()) as lines:
        lines.add_to_history("SELECT 1;")
        lines.add_to_history("SELECT 1;")
        lines.add_to_history("SELECT\n  2;")
        lines.add_to_history("SELECT 3 -- why\n;")
    assert get_history_file_path() == tmp_path / "chronik" / "sql_history"
    assert get_history_file_path().stat().st_mode & 0o077 == 0
    kept = [line for line in get_history_file_path().read_text().splitlines() if not line.startswith("_HiStOrY")]
    assert kept == ["SELECT 1;", "SELECT 2;", "SELECT 3 -- why", ";"]
    readline.clear_history()
    with LineEditor(str, list, lambda _: ()):
        assert readline.get_history_item(1) == "SELECT 1;"
    readline.clear_history()


def test_unwritable_state_directory_only_disables_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with LineEditor(str, list, lambda _: ()) as lines:
        lines.add_to_history("SELECT 1;")
