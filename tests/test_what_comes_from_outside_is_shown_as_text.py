"""Nobody forges a line of a log, takes over a terminal, or fills a disk with names."""

from __future__ import annotations

import io
import json
import logging
import sys
from typing import TextIO, cast

import pytest

from chronik.logs import (
    ARGUMENT_CHARACTERS_MAX,
    BURST_LINES_MAX,
    BURST_SECONDS,
    KINDS_MAX,
    LINE_CHARACTERS_MAX,
    TRACEBACK_CHARACTERS_MAX,
    TRACEBACK_LINE_CHARACTERS_MAX,
    LogFormatter,
    ModeratingHandler,
)
from chronik.shown import EscapingStream, escaped, escaped_lines, escaping_output, json_text, shortened, unescaped

HOSTILE = "x\n2026-01-01 CRITICAL all is lost\r\x1b[31m\x9b2J\x07\u202e\u2028\x00\ud800\x7f"
SHOWN = r"x\n2026-01-01 CRITICAL all is lost\r\x1b[31m\x9b2J\x07\u202e\u2028\x00\ud800\x7f"


def test_control_characters_are_shown_as_python_writes_them() -> None:
    assert escaped(HOSTILE) == SHOWN
    assert escaped("Grüße, 世界, naïve 👩‍💻 café") == "Grüße, 世界, naïve 👩‍💻 café"
    assert escaped_lines("a\tb\n\x1b[1m") == "a\tb\n\\x1b[1m"


def test_long_text_is_cut_and_says_so() -> None:
    assert shortened("x" * 10, 10) == "x" * 10
    assert shortened("x" * 1_234, 10) == "x" * 10 + "… (1,224 characters more)"


def test_json_stays_json_and_holds_what_was_in_it() -> None:
    text = json_text({HOSTILE: ["Grüße"]}, indent=2)
    assert json.loads(text) == {HOSTILE: ["Grüße"]}
    assert "Grüße" in text
    assert escaped_lines(text) == text


class Log:
    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.now = 0.0
        self.handler = ModeratingHandler(self.stream, lambda: self.now)
        self.handler.setFormatter(LogFormatter())
        self.logger = logging.Logger("chronik.test")
        self.logger.addHandler(self.handler)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_line_of_a_log_is_a_line(log: Log) -> None:
    log.logger.warning("no topic %s", HOSTILE)
    log.logger.warning("no topic %(name)s", {"name": HOSTILE})
    log.logger.warning(f"no topic {HOSTILE}")
    log.logger.warning("no topic: %s", ValueError(HOSTILE))
    assert len(log.lines) == 4
    assert all(SHOWN in line for line in log.lines)


def test_no_line_of_a_traceback_looks_like_one_of_the_log(log: Log) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.logger.exception("it broke")
    first, *rest = log.lines
    assert first.endswith("ERROR   chronik.test: it broke")
    assert any(r"2026-01-01 CRITICAL all is lost\r\x1b[31m\x9b2J" in line for line in rest)
    assert all(line.startswith("  | ") for line in rest)


class Told(Exception):
    pass


@pytest.mark.parametrize("message", ["the disk is full", "the disk is full of " + "n" * 100_000])
def test_a_long_traceback_is_cut_in_its_middle(log: Log, message: str) -> None:
    error: Exception = Told("where it began")
    for number in range(300):
        error = _raised_from(error, f"{number} " + "x" * 100)
    try:
        raise Told(message) from error
    except Told:
        log.logger.exception("it broke")
    lines = log.lines[1:]
    assert all(line.startswith("  | ") for line in lines)
    assert any("Told: where it began" in line for line in lines)
    assert "Told: the disk is full" in lines[-1]
    assert sum("characters more" in line for line in lines) == 1 + (len(message) > TRACEBACK_LINE_CHARACTERS_MAX)
    assert len("\n".join(lines)) < TRACEBACK_CHARACTERS_MAX + 100


def _raised_from(cause: Exception, message: str) -> Exception:
    try:
        raise Told(message) from cause
    except Told as error:
        return error


@pytest.mark.parametrize(
    ("lines", "is_cut"),
    [
        ([TRACEBACK_LINE_CHARACTERS_MAX], False),
        ([TRACEBACK_LINE_CHARACTERS_MAX + 1], True),
        ([995] * 15 + [996], False),
        ([995] * 15 + [997], True),
    ],
)
def test_a_traceback_is_so_long_and_no_longer(lines: list[int], is_cut: bool) -> None:
    """Each line takes five characters more: its indent, and its end."""
    text = "\n".join("x" * letters for letters in lines)
    shown = LogFormatter().formatStack(text)
    assert ("characters more" in shown) == is_cut
    assert is_cut or len(shown) in (TRACEBACK_LINE_CHARACTERS_MAX + 4, TRACEBACK_CHARACTERS_MAX)


@pytest.mark.parametrize(("letters", "is_cut"), [(ARGUMENT_CHARACTERS_MAX, False), (ARGUMENT_CHARACTERS_MAX + 1, True)])
def test_a_long_name_is_cut_where_it_stands(log: Log, letters: int, is_cut: bool) -> None:
    log.logger.warning("topic %s of %d is %r", "n" * letters, 7, "m" * (letters - 2))
    (line,) = log.lines
    assert line.count("characters more") == 2 * is_cut
    assert " of 7 is " in line, "what is behind the name is still told"


@pytest.mark.parametrize(("letters", "is_cut"), [(LINE_CHARACTERS_MAX, False), (LINE_CHARACTERS_MAX + 1, True)])
def test_a_line_is_cut_however_it_was_made(log: Log, letters: int, is_cut: bool) -> None:
    log.logger.warning("n" * letters)
    assert ("characters more" in log.lines[0]) == is_cut


def test_lines_of_a_kind_are_counted_after_a_while(log: Log) -> None:
    for number in range(BURST_LINES_MAX + 250):
        log.logger.info("connection %d closed: %s", number, "it was refused")
    log.logger.info("another kind")
    assert len(log.lines) == BURST_LINES_MAX + 1
    log.now = BURST_SECONDS
    log.logger.info("another kind")
    assert len(log.lines) == BURST_LINES_MAX + 3
    assert "250 lines more like this one within 10 s: connection %d closed: %s" in log.lines[-2]
    log.logger.info("connection %d closed: %s", 1, "it was refused")
    assert "connection 1 closed" in log.lines[-1]


def test_what_was_left_out_is_told_at_the_end_at_the_latest(log: Log) -> None:
    for number in range(BURST_LINES_MAX + 1):
        log.logger.info("connection %d closed", number)
    log.handler.close()
    assert "1 lines more" in log.lines[-1]


def test_debug_lines_are_all_written(log: Log) -> None:
    log.logger.setLevel(logging.DEBUG)
    for number in range(3 * BURST_LINES_MAX):
        log.logger.debug("request %d", number)
    assert len(log.lines) == 3 * BURST_LINES_MAX


def test_kinds_that_are_made_at_run_time_are_forgotten(log: Log) -> None:
    for number in range(3 * KINDS_MAX):
        log.logger.info(f"kind {number}")
    assert len(log.handler._counts) == KINDS_MAX
    assert len(log.lines) == 3 * KINDS_MAX


def test_whatever_is_printed_is_escaped_and_bytes_are_not() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    stream = EscapingStream(out)
    print(f"a\tb\n{HOSTILE}", file=stream)
    stream.buffer.write(b"\x1b[1m")
    unescaped(cast(TextIO, stream)).write("\x1b[2m")
    stream.flush()
    written = out.buffer.getvalue()
    assert written.count(b"\x1b") == 2
    assert b"\\x1b[31m" in written


def test_output_is_as_it_was_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    with escaping_output():
        print("\x1b[1m")
        print("\x1b[1m", file=sys.stderr)
    assert sys.stdout is before
    assert capsys.readouterr() == ("\\x1b[1m\n", "\\x1b[1m\n")
