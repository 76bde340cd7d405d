"""The input formats of `chronik produce`, and the errors for invalid lines."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from itertools import chain

import pytest

from chronik.cli.arguments import InvalidInput
from chronik.cli.records import input_formats as reading
from chronik.cli.records.input_formats import (
    NumberedRecords,
    add_format_arguments,
    create_input_parser,
    number_lines,
    split_lines,
)
from chronik.client.records import OutgoingRecord


def parse_chunks(words: str, chunks: Iterable[bytes]) -> Iterator[NumberedRecords]:
    parser = argparse.ArgumentParser()
    add_format_arguments(parser)
    return create_input_parser(parser.parse_args(words.split()))(chunks)


def parse_records(words: str, text: str | bytes) -> list[OutgoingRecord]:
    chunk = text.encode() if isinstance(text, str) else text
    return [record for _, record in chain.from_iterable(parse_chunks(words, [chunk]))]


def parse_until_error(words: str, text: str | bytes) -> tuple[int, str]:
    """Return the number of records before the error, and its message."""
    found = parse_chunks(words, [text.encode() if isinstance(text, str) else text])
    read: list[NumberedRecords] = []
    with pytest.raises(InvalidInput) as raised:
        read.extend(found)
    return sum(map(len, read)), str(raised.value)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_lines_are_independent_of_chunk_size(size: int) -> None:
    text = b"one\n\ntwo\r\nthree"
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    groups = list(number_lines(split_lines(chunks)))
    assert [line for _, lines in groups for line in lines] == [b"one", b"", b"two", b"three"]
    assert [number + i for number, lines in groups for i in range(len(lines))] == [1, 2, 3, 4]


def test_too_long_line_is_rejected_with_line_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LINE_BYTES_MAX", 8)
    assert [len(lines) for lines in split_lines([b"a\n12345678", b"\n"])] == [1, 1]
    for words in ("", "--format json", "--format csv"):
        assert parse_until_error(words, b"\n\n123456789")[1] == "line 3: longer than 8 bytes"


def test_line_is_value_or_key_and_value() -> None:
    assert parse_records("", "v\n\n") == [OutgoingRecord(b"v"), OutgoingRecord(b"")]
    assert parse_records("-k :", "k:v:w") == [OutgoingRecord(b"v:w", b"k")]
    assert parse_until_error("-k :", "k:v\nv\n") == (1, "line 2: key separator ':' not found")


# JSON


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ('{"key": "k", "value": "v"}', b"k", b"v"),
        ('{"value": "\\u65e5\\n"}', None, "日\n".encode()),
        ('{"key": "k", "value": null}', b"k", None),
        ('{"key": "k"}', b"k", None),
        ('{"value": ""}', None, b""),
        ('{"key": 7, "value": {"b": 1.50, "a": [1, {}], "b2": 123456789012345678901}}',
         b"7", b'{"b": 1.50, "a": [1, {}], "b2": 123456789012345678901}'),
        ('{"value": [1, 2]}', None, b"[1, 2]"),
        ('{"value": false}', None, b"false"),
        ('{"value": "null"}', None, b"null"),
        ('{"key_base64": "/w==", "value_base64": ""}', b"\xff", b""),
        ('{"value": "v", "topic": "elsewhere", "offset": 7}', None, b"v"),
    ],
)  # fmt: skip
def test_json_values_are_strings_or_verbatim_json(line: str, key: bytes | None, value: bytes | None) -> None:
    (record,) = parse_records("--format json", line)
    assert (record.key, record.value) == (key, value)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ('[{"name": "a", "value": "1"}, {"name": "a", "value_base64": "/w=="}, {"name": "b"}]',
         (("a", b"1"), ("a", b"\xff"), ("b", None))),
        ('{"a": "1", "b": 2, "c": null}', (("a", b"1"), ("b", b"2"), ("c", None))),
        ("null", ()),
    ],
)  # fmt: skip
def test_json_headers_are_list_or_object(headers: str, expected: tuple[tuple[str, bytes | None], ...]) -> None:
    (record,) = parse_records("--format json", f'{{"value": "v", "headers": {headers}}}')
    assert record.headers == expected


def test_json_line_sets_partition_and_timestamp() -> None:
    (record,) = parse_records("--json", '{"partition": 2, "timestamp": 5}')
    assert (record.partition, record.timestamp) == (2, 5)
    (record,) = parse_records("--json", '{"timestamp": "1970-01-01T00:00:01.5+00:00"}')
    assert (record.partition, record.timestamp) == (None, 1500)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[]", 'expected an object such as {"key": "k", "value": "v"}'),
        ("{", "not valid JSON: Input data was truncated"),
        ('{"value": NaN}', "not valid JSON: JSON is malformed: invalid character (byte 10)"),
        ('{"value": 1} 2', "not valid JSON: JSON is malformed: trailing characters (byte 14)"),
        ('{"value": "\\ud800"}', "not valid JSON: Input data was truncated"),
        (b'{"value": ["\xff"]}',
         "not valid JSON: 'utf-8' codec can't decode byte 0xff in position 12: invalid start byte"),
        (f'{{"value": {9999 * "["}', "not valid JSON: maximum recursion depth exceeded while deserializing an object"),
        ('{"partition": "x"}', "partition: expected int | null, got str"),
        ('{"partition": -1}', "partition: expected int >= 0"),
        ('{"timestamp": -2}', "timestamp: expected int >= -1"),
        ('{"timestamp": 9223372036854775808}', "timestamp: expected int <= 9223372036854775807"),
        ('{"timestamp": "1969-12-31"}', "timestamp: expected a time from 1970 on, got '1969-12-31'"),
        ('{"headers": [{"value": "v"}]}', "headers[0]: object missing required field name"),
        ('{"value_base64": "?"}', "value_base64: expected Base64"),
        ('{"key": "ada", "vlaue": {"x": 2}}', "unknown field 'vlaue'; did you mean 'value'?"),
        ('{"key": "ada", "Value": {"x": 2}}', "unknown field 'Value'; did you mean 'value'?"),
        ('{"value": 1, "time_stamp": 5}', "unknown field 'time_stamp'; did you mean 'timestamp'?"),
        ('{"value": 1, "xyz`": 5}',
         "unknown field 'xyz`'; expected one of key, key_base64, key_schema, key_error, value, value_base64, "
         "value_schema, value_error, headers, timestamp, partition, topic, offset"),
        ('{"headers": [{"name": "a"}, {"name": "b", "valeu": 1}]}',
         "headers[1]: unknown field 'valeu'; did you mean 'value'?"),
        ('{"value": "v", "value_base64": "dg=="}', "value and value_base64 are mutually exclusive"),
        ('{"headers": [{"name": "a", "value": 1, "value_base64": "dg=="}]}',
         "headers: value and headers: value_base64 are mutually exclusive"),
    ],
)  # fmt: skip
def test_invalid_json_line_is_rejected_with_line_number(line: str | bytes, expected: str) -> None:
    text = line.encode() if isinstance(line, str) else line
    assert parse_until_error("--format json", b'{"value": "v"}\n\n' + text) == (1, f"line 3: {expected}")


# CSV


def test_csv_row_is_key_and_json_object_of_other_columns() -> None:
    text = 'id,name,note\r\n7,Ada,"says ""hi"",\r\ntwice"\r\n\r\n8,日本,\r\n'
    rest = [b'{"name":"Ada","note":"says \\"hi\\",\\r\\ntwice"}', '{"name":"日本","note":""}'.encode()]
    assert parse_records("--format csv --key id", text) == [
        OutgoingRecord(rest[0], b"7"),
        OutgoingRecord(rest[1], b"8"),
    ]


def test_csv_row_is_json_object_or_one_column() -> None:
    text = "\ufeffid,name\n7,Ada\n"
    assert parse_records("--format csv", text) == [OutgoingRecord(b'{"id":"7","name":"Ada"}')]
    assert parse_records("--format csv --value name", text) == [OutgoingRecord(b"Ada")]
    assert parse_records("--format csv --key id --value id", text) == [OutgoingRecord(b"7", b"7")]
    assert parse_records("--format csv", "id,name\n") == parse_records("--format csv", "") == []


def test_csv_row_has_number_of_its_first_line() -> None:
    found = chain.from_iterable(parse_chunks("--format csv", [b'a\n"1\n2"\n\n3']))
    assert [number for number, _ in found] == [2, 5]


def test_csv_rows_are_yielded_as_soon_as_they_arrive() -> None:
    found = parse_chunks("--format csv", [b"a\n1\n", b"2\n3", b"\n4\n"])
    assert [[record.value for _, record in record_chunk] for record_chunk in found] == [
        [b'{"a":"1"}'], [b'{"a":"2"}'], [b'{"a":"3"}', b'{"a":"4"}'],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "text", "expected"),
    [
        ("", 'a,b\n1,"x\ny"\n2\n', (1, "line 4: expected 2 cells as in the header, got 1")),
        ("", "a,a\n1,2\n", (0, "line 1: duplicate column name: a, a")),
        ("--key c", "a,b\n1,2\n", (0, "line 1: no column 'c'; the columns are a, b")),
        ("--value c", "a,b\n1,2\n", (0, "line 1: no column 'c'; the columns are a, b")),
        ("", b"a\n1\n\xff\n", (1, "line 3: not UTF-8: invalid start byte")),
        ("", 'a\n1\n"2\n3\n', (1, "line 3: unexpected end of data")),
        ("", 'a\n1\n"2"3\n', (1, "line 3: ',' expected after '\"'")),
    ],
)
def test_invalid_csv_row_is_rejected_with_line_number(words: str, text: str | bytes, expected: tuple[int, str]) -> None:
    assert parse_until_error(f"--format csv {words}", text) == expected


def test_long_csv_cell_is_accepted() -> None:
    assert len(parse_records("--format csv --value a", f"a\n{300_000 * 'x'}\n")[0].value or b"") == 300_000


@pytest.mark.parametrize(
    "words", ["--key k", "--value v", "--format json --key k", "--format csv -k :", "--format json -k :"]
)
def test_options_of_other_format_are_rejected(words: str) -> None:
    with pytest.raises(InvalidInput, match="--key"):
        parse_chunks(words, [])
