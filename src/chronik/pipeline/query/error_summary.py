"""Summaries of query errors in one line: Spark's error class, message and position in the statement, no stack."""

from __future__ import annotations

import re
from typing import Final

from chronik.errors import ChronikError

CHRONIK_ERROR: Final = re.compile(r"^(?:chronik\.[\w.]+\.)(?P<kind>\w+): (?P<message>.+)$", re.MULTILINE)
"""Matches the last line of a task's Python traceback if Chronik raised the exception."""

PYTHON_ERROR: Final = re.compile(r"^\s*(?P<message>\w+(?:\.\w+)*(?:Error|Exception): .+)$", re.MULTILINE)
"""Matches the last line of a task's Python traceback for any other exception."""

SPARK_ERROR_CLASS: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\]")
SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w+")
ADVICE: Final = re.compile(
    r" (?:Verify the spelling|Search path:|If you did not|To tolerate|If necessary).*?(?=; line \d|$)"
)
"""Matches Spark's hints about catalogs, schemas and settings, which do not apply to views of topics."""

SUMMARY_CHARACTERS_MAX: Final = 600
"""Maximum length of a summary in characters, since Spark lists every column with a similar name."""


class SqlFailedError(ChronikError):
    """Spark could not run a statement. The message is a one-line summary."""


def summarize_error(message: str) -> str:
    """Summarize an error message of Spark in one line."""
    if found := CHRONIK_ERROR.findall(message):
        return _truncate_message(found[-1][1])
    first = _extract_first_paragraph(message)
    if not SPARK_ERROR_CLASS.search(first) and (found := PYTHON_ERROR.findall(message)):
        return _truncate_message(found[-1])
    return _truncate_message(ADVICE.sub("", SQLSTATE.sub("", first)).rstrip(" ;").replace(".; line", "; line"))


def _extract_first_paragraph(message: str) -> str:
    """Return the message without the query plan or the quoted statement that Spark appends."""
    lines = []
    for line in message.strip().splitlines():
        if not line.strip() or line.startswith(("== ", "'", "JVM stacktrace")):
            break
        lines.append(line.strip())
        if "SQLSTATE" in line:
            break
    return " ".join(lines) or "Spark gave no reason"


def _truncate_message(text: str) -> str:
    return text if len(text) <= SUMMARY_CHARACTERS_MAX else f"{text[: SUMMARY_CHARACTERS_MAX - 1]}…"
