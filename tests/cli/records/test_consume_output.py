"""The output formats of `chronik consume`, its progress bar, and the parsing of start positions."""

from __future__ import annotations

import argparse
import io
import json
import re
import shlex
import sys
from argparse import Namespace

import pytest

from chronik.cli.arguments import InvalidInput, parse_timestamp_ms
from chronik.cli.records import consume
from chronik.cli.records.output_formats import add_format_arguments, select_formatter
from chronik.cli.records.record_json import record_from_json
from chronik.cli.records.start_positions import (
    StartAtEarliest,
    StartAtLastRecords,
    StartAtLatest,
    StartAtOffset,
    StartAtTimestamp,
    StartPosition,
    parse_start_position,
)
from chronik.client.records import ConsumedRecord, TopicPartition

RECORD = ConsumedRecord("orders", 2, 7, 1500, b"k", b"v\xff", (("a", b"1"), ("b", None)))
NULLS = ConsumedRecord("orders", 0, 8, -1, None, None, ())

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
POSITIONS, ENDS = {FIRST: 2, SECOND: 0}, {FIRST: 10, SECOND: 4}


def format_record(words: str, record: ConsumedRecord = RECORD) -> bytes:
    parser = argparse.ArgumentParser()
    add_format_arguments(parser)
    return select_formatter(parser.parse_args(shlex.split(words)))(record)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", b"v\xff\n"),
        ("-k :", b"k:v\xff\n"),
        ("--format lines", b"v\xff\n"),
        ("--format value", b"v\xff\n"),
        ("--format key=value", b"k=v\xff\n"),
        ("--format key=value -k :", b"k:v\xff\n"),
        (r"--pattern '%t-%p@%o %T %k=%s %K,%S (%h) 100%%\t\x41\\日\n'",
         "orders-2@7 1500 k=v\udcff 1,2 (a=1,b=) 100%\tA\\日\n"),
        ("--pattern %o", b"7"),
        (r"--pattern '%o\'", b"7\\"),
        ("--pattern ''", b""),
    ],
)  # fmt: skip
def test_record_is_formatted_as_requested(words: str, expected: bytes | str) -> None:
    assert format_record(words) == (
        expected if isinstance(expected, bytes) else expected.encode(errors="surrogateescape")
    )


def test_null_is_printed_in_lines_and_empty_in_patterns() -> None:
    assert format_record("--format key=value", NULLS) == b"null=null\n"
    assert format_record(r"--pattern '%k,%K,%s,%S,%h\n'", NULLS) == b",-1,,-1,\n"


@pytest.mark.parametrize("words", ["--json", "--format json"])
def test_json_output_round_trips_through_produce_format(words: str) -> None:
    assert json.loads(format_record(words)) == {
        "topic": "orders",
        "partition": 2,
        "offset": 7,
        "timestamp": 1500,
        "key": "k",
        "value_base64": "dv8=",
        "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": None}],
    }
    for record in (RECORD, NULLS, RECORD._replace(value=b'{"a": 1}', key=b"null")):
        again = record_from_json(format_record(words, record))
        assert (again.key, again.value, again.headers, again.timestamp) == (
            record.key,
            record.value,
            record.headers,
            record.timestamp,
        )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--pattern %q", "--pattern: '%q': expected one of %t %p"),
        ("--pattern 50%", "--pattern: '%': expected one of"),
        ("--pattern %s -k :", "--key-separator cannot be used"),
        ("--format value -k :", "--key-separator cannot be used"),
    ],
)
def test_invalid_format_options_are_rejected(words: str, expected: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(expected)):
        format_record(words)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", StartAtEarliest()),
        ("earliest", StartAtEarliest()),
        ("beginning", StartAtEarliest()),
        ("end", StartAtLatest()),
        ("latest", StartAtLatest()),
        ("-3", StartAtLastRecords(3)),
        ("-0", StartAtLastRecords(0)),
        ("0", StartAtOffset(0)),
        ("17", StartAtOffset(17)),
        ("@1500", StartAtTimestamp(1500)),
        ("@1970-01-01T00:00:01.5Z", StartAtTimestamp(1500)),
        ("@1970-01-01T01:00:01.5+01:00", StartAtTimestamp(1500)),
        ("@1970-01-02", StartAtTimestamp(86_400_000)),
        ("@1969-07-20", StartAtTimestamp(0)),
    ],
)
def test_start_position_is_parsed(text: str, expected: StartPosition) -> None:
    assert parse_start_position(text) == expected


@pytest.mark.parametrize(
    "text", ["", "soon", "1.5", "+1", "--1", "1_000", "٣", "@", "@soon", "@-5", "9223372036854775808", "@9" * 12]
)
def test_invalid_start_position_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        parse_start_position(text)


def test_time_without_zone_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert parse_timestamp_ms("2026-05-31T12:00:00") == parse_timestamp_ms("2026-05-31T12:00:00Z") == 1780228800000
    with pytest.raises(InvalidInput, match="expected a time such as"):
        parse_timestamp_ms("0001-01-01T00:00:00+99:00")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress_output(
    monkeypatch: pytest.MonkeyPatch, out: io.StringIO, *, follow: bool = False, most: int | None = None
) -> str:
    monkeypatch.setattr(consume, "PROGRESS_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(sys, "stdout", out)
    arguments = Namespace(topic="orders", follow=follow, max_records=most)
    with consume._show_progress(arguments, POSITIONS, ENDS) as advance:
        advance(3)
    return terminal.getvalue()


def test_consume_shows_progress_when_stdout_is_redirected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "3 of 12 records" in progress_output(monkeypatch, io.StringIO())
    assert "3 of 5 records" in progress_output(monkeypatch, io.StringIO(), most=5)


def test_consume_shows_no_progress_on_terminal_or_with_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress_output(monkeypatch, Terminal()) == ""
    assert progress_output(monkeypatch, io.StringIO(), follow=True) == ""
