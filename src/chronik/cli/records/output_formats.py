"""Output formats of `chronik consume`: lines, JSON, or a pattern as in kcat."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from typing import Final

from chronik.cli.arguments import InvalidInput
from chronik.cli.records.record_decoder import ProblemReporter, RecordDecoder
from chronik.cli.records.record_json import record_to_json
from chronik.client.records import ConsumedRecord

FORMATS: Final = ("lines", "value", "key=value", "json")

RecordFormatter = Callable[[ConsumedRecord], bytes]
"""A function that formats a record, including the line break if the format has one."""

_PATTERN_TOKENS: Final = re.compile(r"%.?|\\x[0-9a-fA-F]{1,2}|\\.?|[^%\\]+", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t"}
_PLACEHOLDERS: Final[dict[str, RecordFormatter]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "k": lambda record: record.key or b"",
    "s": lambda record: record.value or b"",
    "K": lambda record: _format_length(record.key),
    "S": lambda record: _format_length(record.value),
    "h": lambda record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
    "%": lambda record: b"%",
}


def add_format_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-k", "--key-separator", metavar="TEXT", help="print key and TEXT before the value")
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--format", choices=FORMATS, default="lines", help="output format (default: %(default)s)")
    formats.add_argument("--json", action="store_true", help="same as --format json: all fields of a record")
    formats.add_argument(
        "--pattern",
        metavar="TEXT",
        help=r"format as in kcat -f: %%t topic, %%p partition, %%o offset, %%T timestamp, %%h headers, %%k key, "
        r"%%s value, %%K key length, %%S value length, \n line break",
    )
    parser.add_argument(
        "--decode",
        action=argparse.BooleanOptionalAction,
        help="print typed keys and values (Avro, JSON Schema, Protobuf) as JSON, decoded with the registry's schemas "
        "(default: with --format json or --registry)",
    )


def select_formatter(arguments: argparse.Namespace, decode: RecordDecoder | None = None) -> RecordFormatter:
    """Return the formatter selected by the options, which prints what `decode` returns; None prints the raw bytes.

    Raises:
        InvalidInput: Options conflict.
    """
    is_json = arguments.pattern is None and (arguments.json or arguments.format == "json")
    formatter = _select_raw_formatter(arguments)
    if decode is None or arguments.decode is False:
        return formatter
    if is_json:
        return lambda record: record_to_json(record, decode(record)) + b"\n"
    if arguments.decode is None and arguments.registry is None:
        return formatter
    replace_typed_fields = ProblemReporter(decode)
    return lambda record: formatter(replace_typed_fields(record))


def _select_raw_formatter(arguments: argparse.Namespace) -> RecordFormatter:
    separator = arguments.key_separator
    if separator is not None and (arguments.pattern is not None or arguments.format == "value"):
        raise InvalidInput("--key-separator cannot be used with --pattern or --format value")
    if arguments.pattern is not None:
        return create_pattern_formatter(arguments.pattern)
    if arguments.json or arguments.format == "json":
        return lambda record: record_to_json(record) + b"\n"
    if separator is None and arguments.format == "key=value":
        separator = "="
    return _format_value if separator is None else _create_key_value_formatter(os.fsencode(separator))


def _format_value(record: ConsumedRecord) -> bytes:
    return _format_or_null(record.value) + b"\n"


def _create_key_value_formatter(separator: bytes) -> RecordFormatter:
    return lambda record: _format_or_null(record.key) + separator + _format_value(record)


def _format_or_null(value: bytes | None) -> bytes:
    return b"null" if value is None else value


def create_pattern_formatter(text: str) -> RecordFormatter:
    """Return a formatter for a pattern, which adds no line break; raise InvalidInput if the pattern is invalid."""
    formatters = [_create_token_formatter(token) for token in _PATTERN_TOKENS.findall(text)]
    return lambda record: b"".join(formatter(record) for formatter in formatters)


def _create_token_formatter(token: str) -> RecordFormatter:
    if token.startswith("%"):
        if token[1:] not in _PLACEHOLDERS:
            raise InvalidInput(
                f"--pattern: {token!r}: expected one of {' '.join(f'%{name}' for name in _PLACEHOLDERS)}"
            )
        return _PLACEHOLDERS[token[1:]]
    text = _unescape_token(token)
    return lambda record: text


def _unescape_token(token: str) -> bytes:
    if token.startswith("\\x") and len(token) > 2:
        return bytes([int(token[2:], 16)])
    if token.startswith("\\") and len(token) > 1:
        return _ESCAPES.get(token[1:], os.fsencode(token[1:]))
    return os.fsencode(token)


def _format_length(value: bytes | None) -> bytes:
    return b"%d" % (-1 if value is None else len(value))
