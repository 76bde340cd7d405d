"""A lexer for Spark SQL statements.

It only distinguishes names, strings, comments and symbols, which is enough to find the names in a statement. Parsing
and validation are left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple


class TokenKind(Enum):
    """The kind of a token."""

    WORD = "word"
    """A keyword or an unquoted name."""
    QUOTED = "quoted"
    """An identifier in backticks; the token's text excludes them."""
    STRING = "string"
    SYMBOL = "symbol"


class SqlToken(NamedTuple):
    """A token of a statement, with its position."""

    kind: TokenKind
    text: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        return self.kind is TokenKind.WORD and self.text.upper() in words

    def is_symbol(self, symbol: str) -> bool:
        return self.kind is TokenKind.SYMBOL and self.text == symbol


_TOKEN = re.compile(
    r"""
      (?P<space>\s+|--(?:\\\r?\n|[^\r\n])*)
    | (?P<comment>/\*)
    | (?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | `(?P<quoted>(?:[^`]|``)*)`
    | (?P<word>\w+)
    | (?P<symbol>\|>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


def tokenize_sql(statement: str) -> Iterator[SqlToken]:
    """Yield the tokens of a statement, without white space and comments. An unclosed quote is a symbol."""
    position = 0
    while position < len(statement):
        match = _TOKEN.match(statement, position)
        assert match is not None, "any character is a symbol at least"
        position = match.end()
        if match["comment"] is not None:
            position = _find_comment_end(statement, position)
        elif match["string"] is not None:
            yield SqlToken(TokenKind.STRING, match["string"], match.start(), position)
        elif match["quoted"] is not None:
            yield SqlToken(TokenKind.QUOTED, match["quoted"].replace("``", "`"), match.start(), position)
        elif match["word"] is not None:
            yield SqlToken(TokenKind.WORD, match["word"], match.start(), position)
        elif match["symbol"] is not None:
            yield SqlToken(TokenKind.SYMBOL, match["symbol"], match.start(), position)


def _find_comment_end(statement: str, position: int) -> int:
    """Return the position after a (possibly nested) comment that was opened before `position`."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(statement, position):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(statement)


def split_statements(text: str) -> list[str]:
    """Split a text into statements at semicolons. A script (`BEGIN … END`) is one statement, as in Spark."""
    parts: list[str] = []
    start = end = 0
    is_script = False
    for number, lexeme in enumerate(tokenize_sql(text)):
        is_script = is_script or (number == 0 and lexeme.is_word("BEGIN"))
        if lexeme.is_symbol(";") and not is_script:
            if end > start:
                parts.append(text[start:end].strip())
            start = end = lexeme.end
        else:
            start, end = (lexeme.start if start >= end else start), lexeme.end
    return [*parts, text[start:end].strip()] if end > start else parts
