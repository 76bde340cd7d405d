"""Records as `consume` prints them: lines, JSON, or a pattern as kcat has them."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from typing import Final

from chronik.cli.arguments import WrongInput
from chronik.cli.records.record_json import record_to_json
from chronik.client.records import ConsumedRecord

FORMATS: Final = ("lines", "value", "key=value", "json")

Printed = Callable[[ConsumedRecord], bytes]
"""A record with its line end, if it is to have one."""

_PIECES: Final = re.compile(r"%.?|\\x[0-9a-fA-F]{1,2}|\\.?|[^%\\]+", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t"}
_PARTS: Final[dict[str, Printed]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "k": lambda record: record.key or b"",
    "s": lambda record: record.value or b"",
    "K": lambda record: _length(record.key),
    "S": lambda record: _length(record.value),
    "h": lambda record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
    "%": lambda record: b"%",
}


def add_format_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-k", "--key-separator", metavar="TEXT", help="print the key and TEXT before the value")
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--format", choices=FORMATS, default="lines", help="(default: %(default)s: the values)")
    formats.add_argument("--json", action="store_true", help="as --format json: everything about a record")
    formats.add_argument(
        "--pattern",
        metavar="TEXT",
        help=r"as kcat's -f: %%t topic, %%p partition, %%o offset, %%T timestamp, %%h headers, %%k key, %%s value, "
        r"%%K and %%S their lengths; \n ends a line",
    )


def printed_as(arguments: argparse.Namespace) -> Printed:
    """Raises WrongInput."""
    separator = arguments.key_separator
    if separator is not None and (arguments.pattern is not None or arguments.format == "value"):
        raise WrongInput("--key-separator: expected none with --pattern or --format value, which say what is printed")
    if arguments.pattern is not None:
        return pattern(arguments.pattern)
    if arguments.json or arguments.format == "json":
        return lambda record: record_to_json(record) + b"\n"
    if separator is None and arguments.format == "key=value":
        separator = "="
    return _value_line if separator is None else _key_and_value(os.fsencode(separator))


def _value_line(record: ConsumedRecord) -> bytes:
    return _or_null(record.value) + b"\n"


def _key_and_value(separator: bytes) -> Printed:
    return lambda record: _or_null(record.key) + separator + _value_line(record)


def _or_null(value: bytes | None) -> bytes:
    return b"null" if value is None else value


def pattern(text: str) -> Printed:
    """What stands there is printed and nothing more, not even a line end. Raises WrongInput."""
    parts = [_part(piece) for piece in _PIECES.findall(text)]
    return lambda record: b"".join(part(record) for part in parts)


def _part(piece: str) -> Printed:
    if piece.startswith("%"):
        if piece[1:] not in _PARTS:
            raise WrongInput(f"--pattern: {piece!r}: expected one of {' '.join(f'%{name}' for name in _PARTS)}")
        return _PARTS[piece[1:]]
    text = _unescaped(piece)
    return lambda record: text


def _unescaped(piece: str) -> bytes:
    if piece.startswith("\\x") and len(piece) > 2:
        return bytes([int(piece[2:], 16)])
    if piece.startswith("\\") and len(piece) > 1:
        return _ESCAPES.get(piece[1:], os.fsencode(piece[1:]))
    return os.fsencode(piece)


def _length(value: bytes | None) -> bytes:
    return b"%d" % (-1 if value is None else len(value))
