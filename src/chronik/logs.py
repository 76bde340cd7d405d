"""A node's log: a line is a line whatever it contains, long names are cut, and nobody can fill a disk with lines.

All of it happens where lines are written, so that no caller has to think of it.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TextIO

from chronik.shown import escaped, escaped_lines, json_text, shortened

FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

ARGUMENT_CHARACTERS_MAX: Final = 400
"""How much of a name, a reason or an error a line shows. Names of topics have 249 at most, others up to 32,767."""

LINE_CHARACTERS_MAX: Final = 4_000

TRACEBACK_CHARACTERS_MAX: Final = 16_000

TRACEBACK_END_CHARACTERS: Final = 2_000
"""A traceback is cut in its middle, and this much of its end stays: the end says what happened."""

TRACEBACK_LINE_CHARACTERS_MAX: Final = 1_000
"""Less than the end that stays, so that the beginning of an error that quotes much is in it, too."""

BURST_LINES_MAX: Final = 50
"""Lines of one kind in BURST_SECONDS; further ones are counted. A start, a failover or a slip of an operator has fewer
of them that matter; strangers that knock at a port make thousands."""

BURST_SECONDS: Final = 10.0

KINDS_MAX: Final = 1_000
"""A kind is a message before its arguments are put in, so there are about a hundred; one that is built at run time is a
new one each time."""

TRACEBACK_INDENT: Final = "  | "
"""With it no line of a traceback, which may quote anything, can be taken for a line of the log."""

IS_JSON: Final = {"is_json": True}
"""What a caller gives as `extra` whose message is an object of JSON by itself: in a log of JSON its fields stand beside
the others, and not in a text once more. None of them is named as one of the log's own is."""


class LogFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = shortened(escaped(_message(record)), LINE_CHARACTERS_MAX)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return _cut_traceback(escaped_lines(super().formatException(ei)), TRACEBACK_INDENT)

    def formatStack(self, stack_info: str) -> str:
        return _cut_traceback(escaped_lines(super().formatStack(stack_info)), TRACEBACK_INDENT)


class JsonFormatter(logging.Formatter):
    """An object a line. JSON escapes what could break a line, so texts are as they were, but cut as others are."""

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
            **_told(record),
        }
        if record.exc_info:
            fields["exception"] = _cut_traceback(self.formatException(record.exc_info))
        if record.stack_info:
            fields["stack"] = _cut_traceback(self.formatStack(record.stack_info))
        return json_text(fields)


def _told(record: logging.LogRecord) -> dict[str, Any]:
    message = _message(record)
    told = {"message": shortened(message, LINE_CHARACTERS_MAX)}
    return _merged(told, message) if getattr(record, "is_json", False) else told


def _merged(told: dict[str, Any], message: str) -> dict[str, Any]:
    import json  # nodes that log text start sooner

    try:
        fields: dict[str, Any] = json.loads(message)
    except ValueError:  # better told as a text than not at all
        return told
    return {"message": fields["event"], **fields}


def _message(record: logging.LogRecord) -> str:
    if not record.args:
        return str(record.msg)
    if isinstance(record.args, Mapping):
        return str(record.msg) % {name: _cut(value) for name, value in record.args.items()}
    return str(record.msg) % tuple(_cut(value) for value in record.args)


def _cut(value: object) -> object:
    """Leaves numbers as they are: the format of a message may need them."""
    return value if isinstance(value, int | float) else _Cut(value)


class _Cut:
    """Shows itself as the value does, in fewer characters."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return shortened(str(self._value), ARGUMENT_CHARACTERS_MAX)

    def __repr__(self) -> str:
        return shortened(repr(self._value), ARGUMENT_CHARACTERS_MAX)


def _cut_traceback(text: str, indent: str = "") -> str:
    lines = [shortened(line, TRACEBACK_LINE_CHARACTERS_MAX) for line in text.split("\n")]
    indented = indent + f"\n{indent}".join(lines)
    if len(indented) <= TRACEBACK_CHARACTERS_MAX:
        return indented
    beginning = shortened(indented[:-TRACEBACK_END_CHARACTERS], TRACEBACK_CHARACTERS_MAX - TRACEBACK_END_CHARACTERS)
    return f"{beginning}\n{indent}…{indented[-TRACEBACK_END_CHARACTERS:]}"


class _Kind:
    """Lines of one kind since `began`."""

    __slots__ = ("began", "left_out", "written")

    def __init__(self, began: float) -> None:
        self.began = began
        self.written = 0
        self.left_out = 0


class ModeratingHandler(logging.StreamHandler[TextIO]):
    """Writes at most BURST_LINES_MAX lines of a kind in BURST_SECONDS, and then how many more there were. All debug
    lines are written: an operator has asked for them."""

    def __init__(self, stream: TextIO, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._monotonic = monotonic
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._leaving_out: set[tuple[str, str]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        now = self._monotonic()
        self._tell_what_was_left_out(now)
        if record.levelno <= logging.DEBUG or self._is_written(record, now):
            super().emit(record)

    def close(self) -> None:
        self._tell_what_was_left_out(float("inf"))
        super().close()

    def _is_written(self, record: logging.LogRecord, now: float) -> bool:
        key = (record.name, str(record.msg))
        kind = self._kinds.get(key)
        if kind is None or now - kind.began >= BURST_SECONDS:
            self._kinds.pop(key, None)
            kind = self._kinds[key] = _Kind(now)
            if len(self._kinds) > KINDS_MAX:
                self._forget_oldest()
        if kind.written < BURST_LINES_MAX:
            kind.written += 1
            return True
        kind.left_out += 1
        self._leaving_out.add(key)
        return False

    def _forget_oldest(self) -> None:
        key = next(iter(self._kinds))
        self._leaving_out.discard(key)
        del self._kinds[key]

    def _tell_what_was_left_out(self, now: float) -> None:
        for key in [each for each in self._leaving_out if now - self._kinds[each].began >= BURST_SECONDS]:
            self._leaving_out.discard(key)
            kind = self._kinds.pop(key)
            name, message = key
            text = "%d lines more like this one within %.0f s: %s"
            arguments = (kind.left_out, BURST_SECONDS, shortened(message, ARGUMENT_CHARACTERS_MAX))
            super().emit(logging.LogRecord(name, logging.WARNING, "", 0, text, arguments, None))


def configure_logging(level: str, stream: TextIO, log_format: str = "text") -> None:
    """Does nothing if logging is configured already."""
    root = logging.getLogger()
    if not root.handlers:
        handler = ModeratingHandler(stream)
        handler.setFormatter(JsonFormatter() if log_format == "json" else LogFormatter())
        root.addHandler(handler)
        root.setLevel(level.upper())
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def say(text: str, log_format: str, level: int = logging.CRITICAL) -> None:
    """Tells whoever has started this process what becomes of it: whatever is logged, and as the log is written."""
    if log_format == "json":
        told = JsonFormatter().format(logging.LogRecord("chronik", level, "", 0, text, None, None))
    else:
        told = f"chronik: {escaped(text)}"
    print(told, file=sys.stderr, flush=True)
