"""Untrusted text in logs and output is escaped and truncated, and log lines are rate-limited."""

from __future__ import annotations

import io
import json
import logging
import sys
from typing import TextIO, cast

import pytest

from chronik.escaping import (
    EscapingStream,
    escape,
    escape_except_line_breaks,
    escape_output,
    raw_stream,
    to_json_text,
    truncate_text,
)
from chronik.log_output import (
    ARGUMENT_CHARACTERS_MAX,
    BURST_LINES_MAX,
    BURST_SECONDS,
    LINE_CHARACTERS_MAX,
    MESSAGE_TEMPLATES_MAX,
    TRACEBACK_CHARACTERS_MAX,
    TRACEBACK_LINE_CHARACTERS_MAX,
    LogFormatter,
    RateLimitedHandler,
)

HOSTILE = "x\n2026-01-01 CRITICAL all is lost\r\x1b[31m\x9b2J\x07\u202e\u2028\x00\ud800\x7f"
ESCAPED = r"x\n2026-01-01 CRITICAL all is lost\r\x1b[31m\x9b2J\x07\u202e\u2028\x00\ud800\x7f"


def test_control_characters_are_escaped_as_in_python() -> None:
    assert escape(HOSTILE) == ESCAPED
    assert escape("Grüße, 世界, naïve 👩‍💻 café") == "Grüße, 世界, naïve 👩‍💻 café"
    assert escape_except_line_breaks("a\tb\n\x1b[1m") == "a\tb\n\\x1b[1m"


def test_long_text_is_truncated_with_a_note() -> None:
    assert truncate_text("x" * 10, 10) == "x" * 10
    assert truncate_text("x" * 1_234, 10) == "x" * 10 + "… (1,224 characters more)"


def test_escaped_json_decodes_to_original_value() -> None:
    text = to_json_text({HOSTILE: ["Grüße"]}, indent=2)
    assert json.loads(text) == {HOSTILE: ["Grüße"]}
    assert "Grüße" in text
    assert escape_except_line_breaks(text) == text


class Log:
    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.now = 0.0
        self.handler = RateLimitedHandler(self.stream, lambda: self.now)
        self.handler.setFormatter(LogFormatter())
        self.logger = logging.Logger("chronik.test")
        self.logger.addHandler(self.handler)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def log() -> Log:
    return Log()


def test_log_record_with_line_breaks_is_one_line(log: Log) -> None:
    log.logger.warning("no topic %s", HOSTILE)
    log.logger.warning("no topic %(name)s", {"name": HOSTILE})
    log.logger.warning(f"no topic {HOSTILE}")
    log.logger.warning("no topic: %s", ValueError(HOSTILE))
    assert len(log.lines) == 4
    assert all(ESCAPED in line for line in log.lines)


def test_traceback_lines_are_indented(log: Log) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.logger.exception("it broke")
    first, *rest = log.lines
    assert first.endswith("ERROR   chronik.test: it broke")
    assert any(r"2026-01-01 CRITICAL all is lost\r\x1b[31m\x9b2J" in line for line in rest)
    assert all(line.startswith("  | ") for line in rest)


class LoggedError(Exception):
    pass


@pytest.mark.parametrize("padding", [0, 1, 2, 3, 50])
@pytest.mark.parametrize("message", ["the disk is full", "the disk is full of " + "n" * 100_000])
def test_long_traceback_is_truncated_in_the_middle(log: Log, message: str, padding: int) -> None:
    error: Exception = LoggedError("where it began" + "." * padding)
    for number in range(300):
        error = _raised_from(error, f"{number} " + "x" * 100)
    try:
        raise LoggedError(message) from error
    except LoggedError:
        log.logger.exception("it broke")
    lines = log.lines[1:]
    assert all(line.startswith("  | ") for line in lines)
    assert any("LoggedError: where it began" in line for line in lines)
    assert "LoggedError: the disk is full" in lines[-1]
    assert sum("characters more" in line for line in lines) == 1 + (len(message) > TRACEBACK_LINE_CHARACTERS_MAX)
    assert len("\n".join(lines)) < TRACEBACK_CHARACTERS_MAX + 100


def _raised_from(cause: Exception, message: str) -> Exception:
    try:
        raise LoggedError(message) from cause
    except LoggedError as error:
        return error


@pytest.mark.parametrize(
    ("lines", "is_truncated"),
    [
        ([TRACEBACK_LINE_CHARACTERS_MAX], False),
        ([TRACEBACK_LINE_CHARACTERS_MAX + 1], True),
        ([995] * 15 + [996], False),
        ([995] * 15 + [997], True),
    ],
)
def test_traceback_length_is_limited(lines: list[int], is_truncated: bool) -> None:
    """Each line has five more characters: its indentation and its line break."""
    text = "\n".join("x" * letters for letters in lines)
    shown = LogFormatter().formatStack(text)
    assert ("characters more" in shown) == is_truncated
    assert is_truncated or len(shown) in (TRACEBACK_LINE_CHARACTERS_MAX + 4, TRACEBACK_CHARACTERS_MAX)


@pytest.mark.parametrize(
    ("letters", "is_truncated"), [(ARGUMENT_CHARACTERS_MAX, False), (ARGUMENT_CHARACTERS_MAX + 1, True)]
)
def test_long_log_argument_is_truncated(log: Log, letters: int, is_truncated: bool) -> None:
    log.logger.warning("topic %s of %d is %r", "n" * letters, 7, "m" * (letters - 2))
    (line,) = log.lines
    assert line.count("characters more") == 2 * is_truncated
    assert " of 7 is " in line, "the text after the name is kept"


@pytest.mark.parametrize(("letters", "is_truncated"), [(LINE_CHARACTERS_MAX, False), (LINE_CHARACTERS_MAX + 1, True)])
def test_long_log_line_is_truncated(log: Log, letters: int, is_truncated: bool) -> None:
    log.logger.warning("n" * letters)
    assert ("characters more" in log.lines[0]) == is_truncated


def test_repeated_log_lines_are_suppressed_and_counted(log: Log) -> None:
    for number in range(BURST_LINES_MAX + 250):
        log.logger.info("connection %d closed: %s", number, "it was rejected")
    log.logger.info("another kind")
    assert len(log.lines) == BURST_LINES_MAX + 1
    log.now = BURST_SECONDS
    log.logger.info("another kind")
    assert len(log.lines) == BURST_LINES_MAX + 3
    assert "250 similar lines suppressed within 10 s: connection %d closed: %s" in log.lines[-2]
    log.logger.info("connection %d closed: %s", 1, "it was rejected")
    assert "connection 1 closed" in log.lines[-1]


def test_suppressed_lines_are_reported_when_handler_closes(log: Log) -> None:
    for number in range(BURST_LINES_MAX + 1):
        log.logger.info("connection %d closed", number)
    log.handler.close()
    assert "1 similar lines suppressed" in log.lines[-1]


def test_debug_lines_are_not_suppressed(log: Log) -> None:
    log.logger.setLevel(logging.DEBUG)
    for number in range(3 * BURST_LINES_MAX):
        log.logger.debug("request %d", number)
    assert len(log.lines) == 3 * BURST_LINES_MAX


def test_number_of_counted_message_templates_is_limited(log: Log) -> None:
    for number in range(3 * MESSAGE_TEMPLATES_MAX):
        log.logger.info(f"kind {number}")
    assert len(log.handler._counts) == MESSAGE_TEMPLATES_MAX
    assert len(log.lines) == 3 * MESSAGE_TEMPLATES_MAX


def test_printed_text_is_escaped_but_bytes_are_not() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    stream = EscapingStream(out)
    print(f"a\tb\n{HOSTILE}", file=stream)
    stream.buffer.write(b"\x1b[1m")
    raw_stream(cast(TextIO, stream)).write("\x1b[2m")
    stream.flush()
    written = out.buffer.getvalue()
    assert written.count(b"\x1b") == 2
    assert b"\\x1b[31m" in written


def test_escaped_output_is_restored_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    with escape_output():
        print("\x1b[1m")
        print("\x1b[1m", file=sys.stderr)
    assert sys.stdout is before
    assert capsys.readouterr() == ("\\x1b[1m\n", "\\x1b[1m\n")
