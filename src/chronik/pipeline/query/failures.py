"""Why a query failed, in one line: Spark's class of the error, its message and where in the statement, no stack."""

from __future__ import annotations

import re
from typing import Final

from chronik.errors import ChronikError

OURS: Final = re.compile(r"^(?:chronik\.[\w.]+\.)(?P<kind>\w+): (?P<message>.+)$", re.MULTILINE)
"""The last line of a Python traceback that a task sent along, when the error is one of Chronik's."""

PYTHONS: Final = re.compile(r"^\s*(?P<message>\w+(?:\.\w+)*(?:Error|Exception): .+)$", re.MULTILINE)

SPARKS: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\]")
STATE: Final = re.compile(r"\s*SQLSTATE: \w+")
ADVICE: Final = re.compile(
    r" (?:Verify the spelling|Search path:|If you did not|To tolerate|If necessary).*?(?=; line \d|$)"
)
"""Advice about catalogs, schemas and settings, which views of topics have none of."""

CHARACTERS_MAX: Final = 600
"""Spark lists every column that a name may have meant."""


class SqlFailed(ChronikError):
    """Spark could not answer a statement; the message says why, in one line."""


def told(message: str) -> str:
    """Returns what to tell of what Spark said."""
    if found := OURS.findall(message):
        return _short(found[-1][1])
    first = _first_paragraph(message)
    if not SPARKS.search(first) and (found := PYTHONS.findall(message)):
        return _short(found[-1])
    return _short(ADVICE.sub("", STATE.sub("", first)).rstrip(" ;").replace(".; line", "; line"))


def _first_paragraph(message: str) -> str:
    """Returns what comes before the plan or the quoted statement that Spark appends."""
    lines = []
    for line in message.strip().splitlines():
        if not line.strip() or line.startswith(("== ", "'", "JVM stacktrace")):
            break
        lines.append(line.strip())
        if "SQLSTATE" in line:
            break
    return " ".join(lines) or "Spark gave no reason"


def _short(text: str) -> str:
    return text if len(text) <= CHARACTERS_MAX else f"{text[: CHARACTERS_MAX - 1]}…"
