"""Line input with editing, completion and history, using the standard library's `readline` where it is available."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from chronik.cli.pipeline.prompt.completion import DELIMITERS, complete_word
from chronik.errors import ChronikError

HISTORY_LINES_MAX: Final = 1000
STATE_VARIABLE: Final = "XDG_STATE_HOME"


def history_file() -> Path:
    """Return the path of the history file in the user's state directory (XDG base directory specification)."""
    root = os.environ.get(STATE_VARIABLE) or Path.home() / ".local" / "state"
    return Path(root) / "chronik" / "sql_history"


class LineEditor:
    """A line editor; as a context manager, it loads the history and saves it on exit."""

    def __init__(
        self, typed: Callable[[], str], tables: Callable[[], list[str]], columns: Callable[[str], Iterable[str]]
    ) -> None:
        """Create the editor; completion is disabled while `tables` or `columns` raise ChronikError.

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
                self._readline.read_history_file(history_file())
        return self

    def __exit__(self, *_: object) -> None:
        """Save the history; errors are ignored."""
        if self._readline is None:
            return
        self._readline.set_completer(None)
        path = history_file()
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
        """Return the completion number `state`, or None after the last one (readline's completer protocol)."""
        if state == 0:
            self._matches = self._completions(word)
        return self._matches[state] if state < len(self._matches) else None

    def _completions(self, word: str) -> list[str]:
        assert self._readline is not None
        line = self._readline.get_line_buffer()
        before = self._typed() + line[: self._readline.get_begidx()]
        try:
            return complete_word(before, word, self._tables(), self._columns, line[self._readline.get_endidx() :])
        except (ChronikError, OSError):
            return []
