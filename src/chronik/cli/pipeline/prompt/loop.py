"""Lines that are typed become statements, which end with a semicolon. Pure but for what it is handed: who reads a
line, who runs a statement and who tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from chronik.errors import ChronikError
from chronik.pipeline.query.tokens import Lexeme, Token, lexemes, statements

FIRST, MORE = "sql> ", "...> "
HELP: Final = (
    "A statement ends with ;   \\d lists topics and tables, \\d NAME its columns, \\q quits (so does Ctrl-D).\n"
    "Tab completes names and keywords; Ctrl-C forgets what was typed, or stops a query."
)
UNCLOSED: Final = ("'", '"', "`")
QUIT_WORDS: Final = ("quit", "exit")


class Taken(NamedTuple):
    whole: list[str]
    """Statements that are complete."""
    rest: str
    """What is typed of the next one."""


def taken_from(text: str) -> Taken:
    """Cuts complete statements from what was typed so far. A semicolon in a string, a name or a comment ends none, and
    a script (`BEGIN … END;`) ends with its END."""
    found = list(lexemes(text))
    end = _end_of_whole(found)
    return Taken(statements(text[:end]), text[end:].lstrip())


def _end_of_whole(found: list[Lexeme]) -> int:
    """Returns where the last complete statement ends."""
    end, first = 0, True
    in_script = False
    for number, each in enumerate(found):
        if each.token is Token.SYMBOL and each.text in UNCLOSED:
            break  # what comes behind it may be a part of the string
        if first:
            in_script = each.is_word("BEGIN")
        first = False
        if each.is_symbol(";") and (not in_script or _ends_script(found, number)):
            end, first = each.end, True
    return end


def _ends_script(found: list[Lexeme], semicolon: int) -> bool:
    """Blocks within it begin and end, too; `END IF`, `END WHILE` and their like end others."""
    depth = 0
    for before, each in zip([None, *found], found[: semicolon + 1], strict=False):
        if each.is_word("BEGIN"):
            depth += 1
        elif before is not None and before.is_word("END") and (each.is_symbol(";")):
            depth -= 1
    return depth <= 0


class Loop:
    def __init__(
        self,
        read: Callable[[str], str],
        run: Callable[[str], None],
        tell: Callable[[str], None],
        remember: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`read` is handed a prompt, and raises EOFError at the end; `run` raises ChronikError when a statement fails,
        whose one line is told; `remember` is handed what may be wanted again."""
        self._read = read
        self._run = run
        self._tell = tell
        self._remember = remember
        self.typed = ""
        """Of a statement that is not complete."""

    def run(self) -> None:
        while True:
            try:
                line = self._read(MORE if self.typed.strip() else FIRST)
            except EOFError:
                self._tell("")
                return
            except KeyboardInterrupt:
                self.typed = ""
                self._tell("")
                continue
            if not self._take(line):
                return

    def _take(self, line: str) -> bool:
        """Says whether to go on."""
        if not self.typed.strip() and not line.strip():
            return True
        if not self.typed.strip() and (line.lstrip().startswith("\\") or line.strip().rstrip(";") in QUIT_WORDS):
            return self._command(line.strip())
        self.typed += f"{line}\n"
        whole, rest = taken_from(self.typed)
        if whole:
            self._remember(self.typed[: len(self.typed) - len(rest)].strip() if rest else self.typed.strip())
            self.typed = rest
            for statement in whole:
                if not self._done(statement):
                    break
        return True

    def _command(self, text: str) -> bool:
        word, _, argument = text.partition(" ")
        self._remember(text)
        if word.rstrip(";") in ("\\q", *QUIT_WORDS):
            return False
        if word == "\\d":
            self._done(f"DESCRIBE {argument.strip().rstrip(';')}" if argument.strip() else "SHOW TABLES")
        else:
            self._tell(HELP if word in ("\\?", "\\h") else f"{word} is not known; \\? says what is")
        return True

    def _done(self, statement: str) -> bool:
        """Says whether it went well: what was typed behind a statement that failed is not run."""
        try:
            self._run(statement)
        except ChronikError as error:
            self._tell(" ".join(str(error).split()))
        except KeyboardInterrupt:
            self._tell("stopped")
        else:
            return True
        return False
