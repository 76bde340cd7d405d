"""Encoded values that are expensive to decode or to show, with their schemas."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from chronik.formats.codec import ValueFormat, WriterSchema

AVRO, JSON, PROTOBUF = ValueFormat.AVRO, ValueFormat.JSON_SCHEMA, ValueFormat.PROTOBUF

RECORD_END: Final = b"\x00"


class HostileValue(NamedTuple):
    """A value, given by its size, and its schema."""

    format: ValueFormat
    schema: str
    build: Callable[[int], bytes]
    """Return a value of about a number of bytes."""

    @property
    def writer_schema(self) -> WriterSchema:
        return WriterSchema(self.format, self.schema)


def encode_long(value: int) -> bytes:
    """Encode an Avro long: a varint in zigzag form."""
    return encode_varint((value << 1) ^ (value >> 63))


def encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _avro(schema: Any, build: Callable[[int], bytes]) -> HostileValue:
    return HostileValue(AVRO, json.dumps(schema), build)


def _record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": type} for each, type in fields]}


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _map(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def _decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def _nest(schema: Any, depth: int) -> Any:
    for _ in range(depth):
        schema = _array(schema)
    return schema


def _elements(element: bytes) -> Callable[[int], bytes]:
    """Return the builder of an Avro array of equal elements."""

    def build(size: int) -> bytes:
        count = max(1, size // max(1, len(element)))
        return encode_long(count) + element * count + RECORD_END

    return build


def _repeat(piece: bytes, start: bytes = b"", end: bytes = b"") -> Callable[[int], bytes]:
    return lambda size: start + piece * max(1, (size - len(start) - len(end)) // len(piece)) + end


def _message(number: int, content: bytes) -> bytes:
    """Encode a Protobuf field of wire type 2."""
    return encode_varint(number << 3 | 2) + encode_varint(len(content)) + content


def _nest_messages(size: int) -> bytes:
    content = b""
    while len(content) < size - 10:
        content = _message(1, content)
    return content


def _proto(body: str, build: Callable[[int], bytes]) -> HostileValue:
    syntax = "proto2" if "[default" in body else "proto3"
    return HostileValue(PROTOBUF, f'syntax = "{syntax}";\n{body}', build)


def _json(schema: Any, build: Callable[[int], bytes]) -> HostileValue:
    return HostileValue(JSON, json.dumps(schema), build)


NULL_FIELDS: Final = _record(("b", "boolean"), *((f"n{number}", "null") for number in range(5000)))
MANY_FIELDS: Final = _record(*((f"n{number}", "long") for number in range(200)))
WIDE_MESSAGE: Final = "message W { " + " ".join(f"int32 f{n} = {n + 2};" for n in range(5000)) + " }"
NAN: Final = struct.pack("<d", math.nan)

WIDE_ITEMS: Final = {
    "type": "array",
    "items": {"type": ["object", "null"], "properties": {f"p{number}": {"type": "integer"} for number in range(150)}},
}

HOSTILE_VALUES: Final[dict[str, HostileValue]] = {
    # Avro: elements without bytes
    "avro array of nulls": _avro(_array("null"), lambda size: encode_long(2**40) + RECORD_END),
    "avro blocks of nulls": _avro(_array("null"), _repeat(encode_long(10_000), end=RECORD_END)),
    "avro arrays of nulls": _avro(_array(_array("null")), _elements(encode_long(10_000) + RECORD_END)),
    "avro array of empty records": _avro(_array(_record()), lambda size: encode_long(2**50) + RECORD_END),
    "avro array of empty fixed": _avro(
        _array({"type": "fixed", "name": "F", "size": 0}), lambda size: encode_long(2**50) + RECORD_END
    ),
    "avro records with null fields": _avro(_array(NULL_FIELDS), _elements(b"\x01")),
    "avro blocks without elements": _avro(_array("int"), _repeat(encode_long(-1) + encode_long(0))),
    "avro block of negative count": _avro(
        _array("null"), lambda size: encode_long(-(2**62)) + encode_long(0) + b"\x00"
    ),
    "avro block of least count": _avro(_array("null"), lambda size: encode_long(-(2**63)) + encode_long(0) + b"\x00"),
    # Avro: nesting
    "avro recursive record": _avro(_record(("next", ["null", "R"])), lambda size: b"\x02" * size),
    "avro recursive array": _avro(_record(("c", _array("R"))), lambda size: b"\x02" * size),
    "avro recursive map": _avro(_record(("c", _map("R"))), lambda size: b"\x02\x00" * (size // 2)),
    "avro array of depth 90": _avro(_nest("int", 90), _repeat(b"\x02" * 90 + b"\x00" * 91)),
    # Avro: many and large elements
    "avro booleans": _avro(_array("boolean"), _elements(b"\x01")),
    "avro empty strings": _avro(_array("string"), _elements(b"\x00")),
    "avro empty maps": _avro(_array(_map("string")), _elements(b"\x00")),
    "avro unions": _avro(_array(["null", "int", "string"]), _elements(b"\x00")),
    "avro equal keys": _avro(_map("int"), _elements(b"\x00\x00")),
    "avro different keys": _avro(
        _map("null"),
        lambda size: encode_long(size // 8) + b"".join(b"\x0e%07d" % n for n in range(size // 8)) + RECORD_END,
    ),
    "avro long key": _avro(
        _map("long"),
        lambda size: encode_long(1) + encode_long(size) + b"\n\x1b[2J".ljust(size, b"\n"),
    ),
    "avro string of claimed length": _avro("string", lambda size: encode_long(2**62) + b"x" * size),
    "avro string of negative length": _avro("string", lambda size: encode_long(-5) + b"x" * size),
    "avro invalid utf-8": _avro(_array("string"), _elements(b"\x08\xff\xc0\x80\xed")),
    "avro control characters": _avro("string", lambda size: encode_long(size) + b"\x01" * size),
    "avro overlong varints": _avro(_array("long"), _elements(b"\x80" * 9 + b"\x00")),
    "avro varints without end": _avro(_array("long"), lambda size: encode_long(5) + b"\x80" * size),
    "avro nan": _avro(_array("double"), _elements(NAN)),
    "avro subnormal floats": _avro(_array("float"), _elements(b"\x01\x00\x00\x00")),
    "avro largest doubles": _avro(_array("double"), _elements(struct.pack("<d", 5e-324))),
    "avro large decimal": _avro(_decimal(10**6, 0), lambda size: encode_long(size) + b"\x7f" * size),
    "avro decimals": _avro(_array(_decimal(9000, 0)), _elements(encode_long(3700) + b"\x7f" * 3700)),
    "avro small decimals": _avro(_array(_decimal(38, 10)), _elements(b"\x02\x01")),
    "avro decimals of large scale": _avro(_array(_decimal(10**8, 10**8)), _elements(b"\x02\x01")),
    "avro largest timestamps": _avro(
        _array({"type": "long", "logicalType": "timestamp-nanos"}), _elements(encode_long(2**63 - 1))
    ),
    "avro latest dates": _avro(_array({"type": "int", "logicalType": "date"}), _elements(encode_long(2**31 - 1))),
    "avro enum out of range": _avro(
        _array({"type": "enum", "name": "E", "symbols": ["A"]}), _elements(encode_long(2**31 - 1))
    ),
    "avro union out of range": _avro(_array(["null", "int"]), _elements(encode_long(-1))),
    "avro long enum symbols": _avro(_array({"type": "enum", "name": "E", "symbols": ["A" * 1000]}), _elements(b"\x00")),
    "avro unions of long enum symbols": _avro(
        _array(["null", "int", {"type": "enum", "name": "E", "symbols": ["A" * 1000]}]), _elements(b"\x04\x00")
    ),
    "avro null records with many fields": _avro(_array(["null", MANY_FIELDS]), _elements(b"\x00")),
    "avro unions of long field names": _avro(
        _array(["null", "int", _record(*((f"{'f' * 900}{n}", "boolean") for n in range(10)))]),
        _elements(b"\x04" + b"\x01" * 10),
    ),
    "avro long field names": _avro(
        _array(_record(*((f"{'f' * 900}{n}", "boolean") for n in range(10)))), _elements(b"\x01" * 10)
    ),
    # Protobuf
    "protobuf wide messages": _proto(f"message M {{ repeated W w = 1; }} {WIDE_MESSAGE}", _repeat(_message(1, b""))),
    "protobuf recursive message": _proto("message M { M m = 1; }", _nest_messages),
    "protobuf recursive list": _proto("message M { repeated M m = 1; }", _nest_messages),
    "protobuf empty messages": _proto("message M { repeated E e = 1; message E {} }", _repeat(_message(1, b""))),
    "protobuf repeated message": _proto("message M { E e = 1; message E { int32 a = 1; } }", _repeat(_message(1, b""))),
    "protobuf packed numbers": _proto("message M { repeated int32 n = 1; }", lambda size: _message(1, b"\x00" * size)),
    "protobuf empty packed lists": _proto("message M { repeated int32 n = 1; }", _repeat(_message(1, b""))),
    "protobuf overlong varints": _proto(
        "message M { repeated int64 n = 1; }", _repeat(b"\x08" + b"\x80" * 9 + b"\x00")
    ),
    "protobuf varints without end": _proto("message M { int64 n = 1; }", lambda size: b"\x08" + b"\x80" * size),
    "protobuf equal keys": _proto("message M { map<string, int32> m = 1; }", _repeat(_message(1, b""))),
    "protobuf map of maps": _proto("message M { map<string, M> m = 1; }", _repeat(_message(1, _message(2, b"")))),
    "protobuf unknown groups": _proto("message M { int32 n = 1; }", _repeat(b"\x13")),
    "protobuf unknown fields": _proto("message M { int32 n = 1; }", _repeat(b"\x18\x00")),
    "protobuf invalid utf-8": _proto("message M { repeated string s = 1; }", _repeat(_message(1, b"\xff\xfe"))),
    "protobuf nan": _proto("message M { repeated double d = 1; }", lambda size: _message(1, NAN * (size // 8))),
    "protobuf struct": _proto(
        'import "google/protobuf/struct.proto"; message M { google.protobuf.Value v = 1; }',
        lambda size: _message(1, _nest_messages(size)),
    ),
    "protobuf list values": _proto(
        'import "google/protobuf/struct.proto"; message M { google.protobuf.ListValue v = 1; }',
        lambda size: _message(1, _message(1, b"") * (size // 2)),
    ),
    "protobuf durations": _proto(
        'import "google/protobuf/duration.proto"; message M { repeated google.protobuf.Duration d = 1; }',
        _repeat(_message(1, b"\x08" + encode_varint(2**63))),
    ),
    "protobuf timestamps": _proto(
        'import "google/protobuf/timestamp.proto"; message M { repeated google.protobuf.Timestamp t = 1; }',
        _repeat(_message(1, b"\x08" + encode_varint(2**63))),
    ),
    "protobuf long enum names": _proto(
        f"message M {{ repeated E e = 1; }} enum E {{ {'A' * 1000} = 0; }}", lambda size: _message(1, b"\x00" * size)
    ),
    "protobuf long defaults": _proto(
        f'message M {{ repeated E e = 1; }} message E {{ optional string s = 1 [default = "{"A" * 1000}"]; }}',
        _repeat(_message(1, b"")),
    ),
    "protobuf recursive lists with long names": _proto(
        f"message M {{ repeated E e = 1; }} message E {{ repeated E e = 1; int32 {'f' * 900} = 2; }}",
        _repeat(_message(1, _message(1, b""))),
    ),
    "protobuf maps of enums": _proto(
        f"message M {{ repeated E e = 1; }} message E {{ map<string, Long> m = 1; }} enum Long {{ {'A' * 1000} = 0; }}",
        _repeat(_message(1, _message(1, b""))),
    ),
    "protobuf long field names": _proto(
        f"message M {{ repeated E e = 1; message E {{ string {'f' * 40} = 1; }} }}",
        _repeat(_message(1, _message(1, b"abc"))),
    ),
    # JSON
    "json nesting": _json({}, lambda size: b"[" * (size // 2) + b"]" * (size // 2)),
    "json objects in objects": _json({}, lambda size: b'{"a":' * (size // 6) + b"1" + b"}" * (size // 6)),
    "json long integer": _json({"type": "integer"}, lambda size: b"7" * size),
    "json long integers": _json({"items": {"type": "integer"}}, _repeat(b"7" * 4000 + b",", b"[", b"1]")),
    "json large exponent": _json({"type": "number"}, lambda size: b"1e" + b"9" * size),
    "json large exponents": _json({}, _repeat(b"1e999999999,", b"[", b"1]")),
    "json small exponents": _json({"items": {"type": "number"}}, _repeat(b"1e-999999999,", b"[", b"1]")),
    "json multiple of exponents": _json({"items": {"multipleOf": 3}}, _repeat(b"1e999999,", b"[", b"1]")),
    "json long fraction": _json({"type": "number"}, lambda size: b"0." + b"7" * size),
    "json equal keys": _json({}, _repeat(b'"":0,', b"{", b'"":0}')),
    "json unique items": _json(
        {"uniqueItems": True}, lambda size: b"[" + b",".join(b'{"a":%d}' % n for n in range(size // 12)) + b"]"
    ),
    "json pattern": _json({"pattern": "^(a+)+$"}, lambda size: b'"' + b"a" * size + b'!"'),
    "json alternatives": _json(
        {"items": {"anyOf": [{"required": [f"k{n}"]} for n in range(90)]}}, _repeat(b"{},", b"[", b"{}]")
    ),
    "json recursive schema": _json(
        {"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"a": {"$ref": "#/$defs/n"}}}}},
        lambda size: b'{"a":' * 90 + b"1" + b"}" * 90,
    ),
    "json empty objects": _json(WIDE_ITEMS, _repeat(b"{},", b"[", b"{}]")),
    "json null objects": _json(WIDE_ITEMS, _repeat(b"null,", b"[", b"null]")),
    "json maps of empty objects": _json(
        {"additionalProperties": WIDE_ITEMS, "type": "object"},
        lambda size: b"{" + b",".join(b'"%06d":[{}]' % n for n in range(size // 14)) + b"}",
    ),
    "json long property": _json(
        {"additionalProperties": {"type": "integer"}}, lambda size: b'{"' + b"\\n\\u001b[2J" * (size // 11) + b'":"x"}'
    ),
    "json invalid utf-8": _json({}, lambda size: b'"' + b"\xff" * size + b'"'),
    "json lone surrogates": _json({}, _repeat(b"\\ud800", b'"', b'"')),
    "json not a number": _json({}, lambda size: b"[NaN, Infinity, -Infinity]"),
    "json without end": _json({}, lambda size: b'"' + b"a" * size),
}
