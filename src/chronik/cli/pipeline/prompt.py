"""The interactive prompt of `chronik pipeline sql`: line editing, history, tab completion and the read-eval loop.

Lines are joined to statements, which end with a semicolon. Completion offers SQL keywords, functions, topics, their
cold and hot halves, and their columns.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import ClusterClient
from chronik.errors import ChronikError
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.query.lexer import SqlToken, TokenKind, split_statements, tokenize_sql

PROMPT, CONTINUATION_PROMPT = "sql> ", "...> "
HELP: Final = (
    "A statement ends with ;   \\d lists topics and tables, \\d NAME lists columns, \\q quits (as does Ctrl-D).\n"
    "Tab completes names and keywords; Ctrl-C clears the input or cancels a query."
)
QUOTE_CHARACTERS: Final = ("'", '"', "`")
QUIT_WORDS: Final = ("quit", "exit")

CACHE_SECONDS: Final = 30.0
TIMEOUT_SECONDS: Final = 2.0
"""Timeout in seconds of requests for the completion of table and column names.

The prompt blocks in the meantime.
"""

HALVES: Final = ("", "_cold", "_hot")

HISTORY_LINES_MAX: Final = 1000
STATE_VARIABLE: Final = "XDG_STATE_HOME"


class SplitInput(NamedTuple):
    statements: list[str]
    """Complete statements."""
    rest: str
    """The incomplete SQL statement at the end of the input."""


def split_input(text: str) -> SplitInput:
    """Split SQL input into complete statements and the incomplete rest.

    Semicolons in strings, identifiers and comments do not end a statement. A script (`BEGIN … END;`) is one statement.
    """
    found = list(tokenize_sql(text))
    end = _find_end_of_complete_statements(found)
    return SplitInput(split_statements(text[:end]), text[end:].lstrip())


def _find_end_of_complete_statements(found: list[SqlToken]) -> int:
    """Return the position after the last complete statement in SQL input."""
    end, first = 0, True
    in_script = False
    for number, each in enumerate(found):
        if each.kind is TokenKind.SYMBOL and each.text in QUOTE_CHARACTERS:
            break  # the rest may be part of the unclosed string
        if first:
            in_script = each.is_word("BEGIN")
        first = False
        if each.is_symbol(";") and (not in_script or _closes_sql_script(found, number)):
            end, first = each.end, True
    return end


def _closes_sql_script(found: list[SqlToken], semicolon: int) -> bool:
    """Return whether a semicolon ends a SQL script, in which all `BEGIN` blocks are closed.

    `END IF` and `END WHILE` close no block.
    """
    depth = 0
    for before, each in zip([None, *found], found[: semicolon + 1], strict=False):
        if each.is_word("BEGIN"):
            depth += 1
        elif before is not None and before.is_word("END") and (each.is_symbol(";")):
            depth -= 1
    return depth <= 0


class SqlPrompt:
    def __init__(
        self,
        read: Callable[[str], str],
        run: Callable[[str], None],
        tell: Callable[[str], None],
        remember: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Create a SQL prompt that reads, runs and reports through callbacks.

        Args:
            read: Reads a line with a prompt; raises EOFError at the end of the input.
            run: Runs a statement; raises ChronikError if it fails.
            tell: Prints a message.
            remember: Adds an input to the history.
        """
        self._read = read
        self._run = run
        self._tell = tell
        self._remember = remember
        self.pending_input = ""
        """The input lines of a SQL statement that is not complete yet."""

    def run(self) -> None:
        while True:
            try:
                line = self._read(CONTINUATION_PROMPT if self.pending_input.strip() else PROMPT)
            except EOFError:
                self._tell("")
                return
            except KeyboardInterrupt:
                self.pending_input = ""
                self._tell("")
                continue
            if not self._process_input_line(line):
                return

    def _process_input_line(self, line: str) -> bool:
        """Process a line of SQL input by running the statements that it completes.

        Return whether the prompt continues.
        """
        if not self.pending_input.strip() and not line.strip():
            return True
        if not self.pending_input.strip() and (
            line.lstrip().startswith("\\") or line.strip().rstrip(";") in QUIT_WORDS
        ):
            return self._run_command(line.strip())
        self.pending_input += f"{line}\n"
        whole, rest = split_input(self.pending_input)
        if whole:
            self._remember(
                self.pending_input[: len(self.pending_input) - len(rest)].strip()
                if rest
                else self.pending_input.strip()
            )
            self.pending_input = rest
            for statement in whole:
                if not self._run_statement(statement):
                    break
        return True

    def _run_command(self, text: str) -> bool:
        word, _, argument = text.partition(" ")
        self._remember(text)
        if word.rstrip(";") in ("\\q", *QUIT_WORDS):
            return False
        if word == "\\d":
            self._run_statement(f"DESCRIBE {argument.strip().rstrip(';')}" if argument.strip() else "SHOW TABLES")
        else:
            self._tell(HELP if word in ("\\?", "\\h") else f"unknown command {word}; use \\? for help")
        return True

    def _run_statement(self, statement: str) -> bool:
        """Run a SQL statement, and return whether it succeeded.

        If it failed, the rest of the input is discarded.
        """
        try:
            self._run(statement)
        except ChronikError as error:
            self._tell(" ".join(str(error).split()))
        except KeyboardInterrupt:
            self._tell("cancelled")
        else:
            return True
        return False


class TableCatalog:
    def __init__(self, bootstrap: Bootstrap, table_root: str, storage_options: Mapping[str, str] | None = None) -> None:
        self._bootstrap = bootstrap
        self._table_root = table_root
        self._storage_options = storage_options
        self._topics: tuple[float, list[str]] = float("-inf"), []
        self._columns: dict[str, tuple[float, list[str]]] = {}

    def tables(self) -> list[str]:
        """Return the names of all tables that SQL can query, cached for a short time."""
        from chronik.pipeline.query.topic_snapshots import SnapshotReader
        from chronik.pipeline.tables.storage import to_absolute_root

        at, found = self._topics
        if time.monotonic() - at > CACHE_SECONDS:
            with ClusterClient(self._bootstrap, client_id=CLIENT_ID, timeout_s=TIMEOUT_SECONDS) as cluster:
                root = to_absolute_root(self._table_root)
                found = SnapshotReader(cluster, root, self._storage_options).list_topics()
            self._topics = time.monotonic(), found
        return [topic + half for topic in found if not topic.startswith("__") for half in HALVES]

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table, cached for a short time."""
        from chronik.pipeline.query.topic_snapshots import SnapshotReader
        from chronik.pipeline.tables.storage import to_absolute_root

        topic = table if table in self._topics[1] else table.removesuffix("_cold").removesuffix("_hot")
        at, found = self._columns.get(topic, (float("-inf"), []))
        if time.monotonic() - at > CACHE_SECONDS:
            with ClusterClient(self._bootstrap, client_id=CLIENT_ID, timeout_s=TIMEOUT_SECONDS) as cluster:
                reader = SnapshotReader(cluster, to_absolute_root(self._table_root), self._storage_options)
                snapshot = reader.take_snapshots([topic])[topic]
            found = list(snapshot.schema.names)
            self._columns[topic] = time.monotonic(), found
        return found


def _split_sql_words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


KEYWORDS: Final = _split_sql_words(
    """ALL AND AS ASC BETWEEN BY CASE CAST CROSS DATE DAY DESC DESCRIBE DISTINCT ELSE END EXCEPT EXISTS EXPLAIN FALSE
    FROM FULL GROUP HAVING HOUR IN INNER INTERSECT INTERVAL IS JOIN LATERAL LEFT LIKE LIMIT MINUTE MONTH NOT NULL NULLS
    OFFSET ON OR ORDER OUTER OVER PARTITION RIGHT SECOND SELECT SHOW TABLES THEN TIMESTAMP TRUE UNION USING VALUES WHEN
    WHERE WINDOW WITH YEAR"""
)
FUNCTIONS: Final = _split_sql_words(
    """avg coalesce collect_list concat count current_timestamp date_format date_trunc explode first get_json_object
    hour last length lower max min now percentile regexp_extract round row_number split substring sum to_date
    to_timestamp trim upper"""
)
COMMON_COLUMNS: Final = ("_partition", "_offset", "_timestamp", "_key", "_headers", "_date", "_value")
"""Columns of most tables, offered as completions while the statement names no table."""

BEFORE_TABLES: Final = ("FROM", "JOIN", "TABLE", "DESCRIBE", "DESC", "\\D")
DELIMITERS: Final = " \t\n,;()=<>!+*/|%"
"""Word delimiters for readline; dots and backticks are part of a word."""

_PLAIN: Final = re.compile(r"[A-Za-z_]\w*")


def quote_identifier(name: str) -> str:
    """Quote an identifier with backticks if necessary."""
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def complete_word(
    before: str, word: str, tables: Sequence[str], columns: Callable[[str], Iterable[str]], after: str = ""
) -> list[str]:
    """Return the completions of a partial word in a SQL statement.

    Args:
        before: The statement up to the word.
        word: The start of the word.
        tables: The names of all tables.
        columns: Returns the columns of a table.
        after: The statement after the word.
    """
    qualifier, dot, start = word.rpartition(".")
    if dot and not word.startswith("`"):
        table_name = _find_table(_unquote_identifier(qualifier), tables)
        return (
            [f"{qualifier}.{quote_identifier(each)}" for each in _filter_by_prefix(start, columns(table_name))]
            if table_name
            else []
        )
    words = [each.text.upper() for each in tokenize_sql(before) if each.kind is not TokenKind.STRING]
    previous = words[-1] if words else ""
    if previous in BEFORE_TABLES or before.rstrip().upper().endswith(BEFORE_TABLES):
        return [quote_identifier(each) for each in _filter_by_prefix(word, tables)]
    named = _find_named_tables(f"{before} {after}", tables)
    found = [quote_identifier(each) for table in named for each in _filter_by_prefix(word, columns(table))]
    if word:
        found += _filter_by_prefix(word, COMMON_COLUMNS) if not named else []
        found += [each if word.isupper() else each.lower() for each in _filter_by_prefix(word, KEYWORDS)]
        found += [f"{each}(" for each in _filter_by_prefix(word, FUNCTIONS)]
        found += [quote_identifier(each) for each in _filter_by_prefix(word, tables)]
    return list(dict.fromkeys(found))


def _filter_by_prefix(word: str, names: Iterable[str]) -> list[str]:
    start = _unquote_identifier(word).casefold()
    return [name for name in names if name.casefold().startswith(start)]


def _find_named_tables(text: str, tables: Sequence[str]) -> list[str]:
    """Return the tables whose names occur in a SQL statement."""
    words = {each.text.casefold() for each in tokenize_sql(text) if each.kind in (TokenKind.WORD, TokenKind.QUOTED)}
    return [name for name in tables if name.casefold() in words]


def _find_table(name: str, tables: Sequence[str]) -> str | None:
    return next((each for each in tables if each.casefold() == name.casefold()), None)


def _unquote_identifier(word: str) -> str:
    return word.strip("`").replace("``", "`")


def get_history_file_path() -> Path:
    """Return the path of the history file in the user's state directory (XDG base directory specification)."""
    root = os.environ.get(STATE_VARIABLE) or Path.home() / ".local" / "state"
    return Path(root) / "chronik" / "sql_history"


class LineEditor:
    """A line editor for SQL input, with a history and completion.

    As a context manager, it loads the history and saves it on exit.
    """

    def __init__(
        self, typed: Callable[[], str], tables: Callable[[], list[str]], columns: Callable[[str], Iterable[str]]
    ) -> None:
        """Create the editor. Completion is unavailable while `tables` or `columns` raise ChronikError.

        Args:
            typed: Returns the previous lines of an incomplete statement.
            tables: Returns the names of all tables.
            columns: Returns the columns of a table.
        """
        self._typed = typed
        self._tables = tables
        self._columns = columns
        self._matches: list[str] = []
        try:
            import readline
        except ImportError:  # Windows and minimal builds
            self._readline = None
        else:
            self._readline = readline

    def __enter__(self) -> LineEditor:
        if self._readline is not None:
            self._readline.set_auto_history(False)
            self._readline.set_completer(self._complete)
            self._readline.set_completer_delims(DELIMITERS)
            is_libedit = "libedit" in (self._readline.__doc__ or "")
            self._readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
            with suppress(OSError):
                self._readline.read_history_file(get_history_file_path())
        return self

    def __exit__(self, *_: object) -> None:
        """Save the history. Errors are ignored."""
        if self._readline is None:
            return
        self._readline.set_completer(None)
        path = get_history_file_path()
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            self._readline.set_history_length(HISTORY_LINES_MAX)
            self._readline.write_history_file(path)

    def read(self, prompt: str) -> str:
        return input(prompt)

    def add_to_history(self, statement: str) -> None:
        """Add a statement to the history, joined to one line unless it contains a comment."""
        if self._readline is None:
            return
        lines = [line.strip() for line in statement.splitlines() if line.strip()]
        for entry in lines if "--" in statement else [" ".join(lines)]:
            count = self._readline.get_current_history_length()
            if entry and (not count or self._readline.get_history_item(count) != entry):
                self._readline.add_history(entry)

    def _complete(self, word: str, state: int) -> str | None:
        """Return the completion with index `state`, or None after the last one (readline's completer protocol)."""
        if state == 0:
            self._matches = self._list_completions(word)
        return self._matches[state] if state < len(self._matches) else None

    def _list_completions(self, word: str) -> list[str]:
        assert self._readline is not None
        line = self._readline.get_line_buffer()
        before = self._typed() + line[: self._readline.get_begidx()]
        try:
            return complete_word(before, word, self._tables(), self._columns, line[self._readline.get_endidx() :])
        except (ChronikError, OSError):
            return []
