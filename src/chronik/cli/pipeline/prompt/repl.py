"""The read-eval loop of the SQL prompt: lines are joined to statements, which end with a semicolon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from chronik.errors import ChronikError
from chronik.pipeline.query.lexer import SqlToken, TokenKind, split_statements, tokenize_sql

PROMPT, CONTINUATION_PROMPT = "sql> ", "...> "
HELP: Final = (
    "A statement ends with ;   \\d lists topics and tables, \\d NAME lists columns, \\q quits (as does Ctrl-D).\n"
    "Tab completes names and keywords; Ctrl-C clears the input or cancels a query."
)
QUOTE_CHARACTERS: Final = ("'", '"', "`")
QUIT_WORDS: Final = ("quit", "exit")


class SplitInput(NamedTuple):
    statements: list[str]
    """Complete statements."""
    rest: str
    """The start of the next statement."""


def split_input(text: str) -> SplitInput:
    """Split the input into complete statements and the rest.

    Semicolons in strings, identifiers and comments do not end a statement. A script (`BEGIN … END;`) is one statement.
    """
    found = list(tokenize_sql(text))
    end = _end_of_complete_statements(found)
    return SplitInput(split_statements(text[:end]), text[end:].lstrip())


def _end_of_complete_statements(found: list[SqlToken]) -> int:
    """Return the end position of the last complete statement."""
    end, first = 0, True
    in_script = False
    for number, each in enumerate(found):
        if each.kind is TokenKind.SYMBOL and each.text in QUOTE_CHARACTERS:
            break  # the rest may be part of the unclosed string
        if first:
            in_script = each.is_word("BEGIN")
        first = False
        if each.is_symbol(";") and (not in_script or _ends_script(found, number)):
            end, first = each.end, True
    return end


def _ends_script(found: list[SqlToken], semicolon: int) -> bool:
    """Return whether the semicolon ends a script: all blocks are closed; `END IF` and `END WHILE` close no block."""
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
        """Create the loop from its callbacks.

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
        """The input of an incomplete statement."""

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
            if not self._process_line(line):
                return

    def _process_line(self, line: str) -> bool:
        """Process a line, and return whether to continue."""
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
        """Run a statement, and return whether it succeeded; after a failure, the rest of the input is discarded."""
        try:
            self._run(statement)
        except ChronikError as error:
            self._tell(" ".join(str(error).split()))
        except KeyboardInterrupt:
            self._tell("cancelled")
        else:
            return True
        return False
