"""Logging of a node: escaped, truncated and rate-limited log lines, as text or JSON.

The formatters and the handler do all of this, so callers may log untrusted values directly.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TextIO

from chronik.escaping import escape, escape_except_line_breaks, to_json_text, truncate_text

FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

ARGUMENT_CHARACTERS_MAX: Final = 400
"""Maximum characters of a log argument, such as a name or an error. Topic names have up to 249, other names up to
32,767."""

LINE_CHARACTERS_MAX: Final = 4_000

TRACEBACK_CHARACTERS_MAX: Final = 16_000

TRACEBACK_END_CHARACTERS: Final = 2_000
"""Characters preserved at the end of a truncated traceback, where the error message is. The middle is removed."""

TRACEBACK_LINE_CHARACTERS_MAX: Final = 1_000
"""Maximum characters of a traceback line. It is less than TRACEBACK_END_CHARACTERS, so that the start of a long error
message is preserved."""

BURST_LINES_MAX: Final = 50
"""Maximum number of log lines with the same message template per BURST_SECONDS. Further lines are only counted."""

BURST_SECONDS: Final = 10.0

MESSAGE_TEMPLATES_MAX: Final = 1_000
"""Maximum number of log message templates whose lines are counted."""

TRACEBACK_INDENT: Final = "  | "
"""Prefix of traceback lines, so that text quoted in a traceback cannot be mistaken for a log line."""

JSON_MESSAGE: Final = {"is_json": True}
"""Value of `extra` for a message that is a JSON object: the JSON log merges its fields into the line instead of quoting
the message. The field names must differ from the log's own fields."""


class LogFormatter(logging.Formatter):
    """A formatter that writes one escaped and truncated text line per record, and an indented traceback."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = truncate_text(escape(_format_message(record)), LINE_CHARACTERS_MAX)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return _truncate_traceback(escape_except_line_breaks(super().formatException(ei)), TRACEBACK_INDENT)

    def formatStack(self, stack_info: str) -> str:
        return _truncate_traceback(escape_except_line_breaks(super().formatStack(stack_info)), TRACEBACK_INDENT)


class JsonFormatter(logging.Formatter):
    """A formatter that writes one JSON object per line, truncated like the text format; JSON escapes line breaks."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__()
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            **_build_message_fields(record),
        }
        if record.exc_info:
            fields["exception"] = _truncate_traceback(self.formatException(record.exc_info))
        if record.stack_info:
            fields["stack"] = _truncate_traceback(self.formatStack(record.stack_info))
        return to_json_text(fields)


def _build_message_fields(record: logging.LogRecord) -> dict[str, Any]:
    message = _format_message(record)
    fields = {"message": truncate_text(message, LINE_CHARACTERS_MAX)}
    return _merge_json(fields, message) if getattr(record, "is_json", False) else fields


def _merge_json(plain: dict[str, Any], message: str) -> dict[str, Any]:
    import json  # imported on use: nodes that log text start faster

    try:
        fields: dict[str, Any] = json.loads(message)
    except ValueError:  # a truncated object: log it as text
        return plain
    return {"message": fields["event"], **fields}


def _format_message(record: logging.LogRecord) -> str:
    if not record.args:
        return str(record.msg)
    if isinstance(record.args, Mapping):
        return str(record.msg) % {name: _truncate_argument(value) for name, value in record.args.items()}
    return str(record.msg) % tuple(_truncate_argument(value) for value in record.args)


def _truncate_argument(value: object) -> object:
    """Wrap a log argument so that its text is truncated. Numbers are not wrapped, because `%d` requires them."""
    return value if isinstance(value, int | float) else _TruncatedValue(value)


class _TruncatedValue:
    """A wrapper that truncates the `str` and `repr` of a value."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return truncate_text(str(self._value), ARGUMENT_CHARACTERS_MAX)

    def __repr__(self) -> str:
        return truncate_text(repr(self._value), ARGUMENT_CHARACTERS_MAX)


def _truncate_traceback(text: str, indent: str = "") -> str:
    lines = [truncate_text(line, TRACEBACK_LINE_CHARACTERS_MAX) for line in text.split("\n")]
    indented = indent + f"\n{indent}".join(lines)
    if len(indented) <= TRACEBACK_CHARACTERS_MAX:
        return indented
    start = indented[: TRACEBACK_CHARACTERS_MAX - TRACEBACK_END_CHARACTERS].rpartition("\n")[0]
    removed_count = len(indented) - len(start) - TRACEBACK_END_CHARACTERS
    end = indented[-TRACEBACK_END_CHARACTERS:]
    return f"{start}\n{indent}… ({removed_count:,} characters more)\n{indent}…{end}"


class _LineCounts:
    """Numbers of written and suppressed log lines with one message template since the start of its interval."""

    __slots__ = ("started_at", "suppressed", "written")

    def __init__(self, started_at: float) -> None:
        self.started_at = started_at
        self.written = 0
        self.suppressed = 0


class RateLimitedHandler(logging.StreamHandler[TextIO]):
    """A stream handler that writes at most BURST_LINES_MAX lines per message template in BURST_SECONDS.

    Afterwards it logs the number of suppressed lines. Debug lines are not limited, because an operator has enabled
    them.
    """

    def __init__(self, stream: TextIO, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._monotonic = monotonic
        self._counts: dict[tuple[str, str], _LineCounts] = {}
        self._suppressed_keys: set[tuple[str, str]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        now = self._monotonic()
        self._log_suppressed(now)
        if record.levelno <= logging.DEBUG or self._may_write(record, now):
            super().emit(record)

    def close(self) -> None:
        self._log_suppressed(float("inf"))
        super().close()

    def _may_write(self, record: logging.LogRecord, now: float) -> bool:
        key = (record.name, str(record.msg))
        counts = self._counts.get(key)
        if counts is None or now - counts.started_at >= BURST_SECONDS:
            self._counts.pop(key, None)
            counts = self._counts[key] = _LineCounts(now)
            if len(self._counts) > MESSAGE_TEMPLATES_MAX:
                self._evict_oldest_template()
        if counts.written < BURST_LINES_MAX:
            counts.written += 1
            return True
        counts.suppressed += 1
        self._suppressed_keys.add(key)
        return False

    def _evict_oldest_template(self) -> None:
        key = next(iter(self._counts))
        self._suppressed_keys.discard(key)
        del self._counts[key]

    def _log_suppressed(self, now: float) -> None:
        for key in [each for each in self._suppressed_keys if now - self._counts[each].started_at >= BURST_SECONDS]:
            self._suppressed_keys.discard(key)
            counts = self._counts.pop(key)
            name, message = key
            text = "%d similar lines suppressed within %.0f s: %s"
            arguments = (counts.suppressed, BURST_SECONDS, truncate_text(message, ARGUMENT_CHARACTERS_MAX))
            super().emit(logging.LogRecord(name, logging.WARNING, "", 0, text, arguments, None))


def configure_logging(level: str, stream: TextIO, log_format: str = "text") -> None:
    """Configure the root logger, unless it has handlers already."""
    root = logging.getLogger()
    if not root.handlers:
        handler = RateLimitedHandler(stream)
        handler.setFormatter(JsonFormatter() if log_format == "json" else LogFormatter())
        root.addHandler(handler)
        root.setLevel(level.upper())
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def print_notice(text: str, log_format: str, level: int = logging.CRITICAL) -> None:
    """Print a message to stderr in the log's format, whatever the log level is."""
    if log_format == "json":
        line = JsonFormatter().format(logging.LogRecord("chronik", level, "", 0, text, None, None))
    else:
        line = f"chronik: {escape(text)}"
    print(line, file=sys.stderr, flush=True)
