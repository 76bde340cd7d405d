"""Lines from a person: edited, completed and remembered by the standard library's `readline`, where there is one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from chronik.cli.pipeline.prompt.completing import DELIMITERS, completions
from chronik.errors import ChronikError

HISTORY_LINES_MAX: Final = 1000
STATE_VARIABLE: Final = "XDG_STATE_HOME"


def history_file() -> Path:
    """In the user's state folder, by the rules of freedesktop.org."""
    root = os.environ.get(STATE_VARIABLE) or Path.home() / ".local" / "state"
    return Path(root) / "chronik" / "sql_history"


class Lines:
    """Use it as a context manager: what was typed is remembered at its end."""

    def __init__(
        self, typed: Callable[[], str], tables: Callable[[], list[str]], columns: Callable[[str], Iterable[str]]
    ) -> None:
        """`typed`: what stands before the line, of a statement of several. `tables` and `columns` may raise
        ChronikError: then nothing is completed."""
        self._typed = typed
        self._tables = tables
        self._columns = columns
        self._found: list[str] = []
        try:
            import readline
        except ImportError:  # Windows, and some small builds
            self._readline = None
        else:
            self._readline = readline

    def __enter__(self) -> Lines:
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
        """A history that cannot be kept is not kept."""
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

    def remember(self, statement: str) -> None:
        """A statement of several lines comes back as one, unless a comment would swallow the rest of it."""
        if self._readline is None:
            return
        lines = [line.strip() for line in statement.splitlines() if line.strip()]
        for entry in lines if "--" in statement else [" ".join(lines)]:
            count = self._readline.get_current_history_length()
            if entry and (not count or self._readline.get_history_item(count) != entry):
                self._readline.add_history(entry)

    def _complete(self, word: str, state: int) -> str | None:
        """Is called by readline, with 0, 1, 2 …, until it returns None."""
        if state == 0:
            self._found = self._completions(word)
        return self._found[state] if state < len(self._found) else None

    def _completions(self, word: str) -> list[str]:
        assert self._readline is not None
        line = self._readline.get_line_buffer()
        before = self._typed() + line[: self._readline.get_begidx()]
        try:
            return completions(before, word, self._tables(), self._columns, line[self._readline.get_endidx() :])
        except (ChronikError, OSError):
            return []
