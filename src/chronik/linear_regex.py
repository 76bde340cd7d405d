"""Regular expressions from clients and operators, matched by RE2 in time linear in the length of the text.

Python's `re` backtracks: `(a+)+b` on thirty letters takes minutes, in which the event loop serves no other client. RE2
has no back-references and no lookaround.
"""

from __future__ import annotations

from typing import Any, Final

from chronik.errors import ChronikError

EXPRESSION_CHARACTERS_MAX: Final = 1_000
MEMORY_BYTES_MAX: Final = 256 * 1024
"""Maximum memory in bytes of a compiled pattern and its cache. It also bounds the time of a match: 2 ms for an id of
250 characters."""


class PatternError(ChronikError):
    """The regular expression is invalid or too large."""


class Pattern:
    """A compiled regular expression."""

    def __init__(self, expression: str) -> None:
        """Compile the regular expression with RE2.

        Raises:
            PatternError: The expression is invalid or too large.
        """
        import re2  # imported lazily: it takes 3.7 MB, and few nodes need it

        if len(expression) > EXPRESSION_CHARACTERS_MAX:
            raise PatternError(f"the expression has more than {EXPRESSION_CHARACTERS_MAX} characters")
        options = re2.Options()
        options.max_mem = MEMORY_BYTES_MAX
        options.log_errors = False
        try:
            self._compiled: Any = re2.compile(expression, options)
        except re2.error as error:
            message = error.args[0]
            raise PatternError(message.decode() if isinstance(message, bytes) else str(message)) from None

    def matches(self, text: str) -> bool:
        """Return whether the expression matches the whole text."""
        return self._compiled.fullmatch(text) is not None

    def occurs_in(self, text: str) -> bool:
        """Return whether the expression matches a part of the text."""
        return self._compiled.search(text) is not None

    def groups(self, text: str) -> tuple[str, ...] | None:
        """Return the whole text and the text of each group (empty if unmatched), or None if there is no match."""
        match = self._compiled.fullmatch(text)
        return None if match is None else (match[0], *match.groups(""))
