"""Random Avro schemas and payloads, and JSON forms that are derived from fastavro and from Arrow arrays."""

from __future__ import annotations

import base64
import io
import random
import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import msgspec
import pyarrow as pa

from chronik.formats.codec import FORMAT_KEY, DecodedColumn, JsonForm, format_float, format_single_float

Schema = Any

PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")
DEPTH_MAX = 8
"""Nesting of a payload at which its arrays become empty and its unions null."""

LOGICAL_TYPES = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-nanos"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
    {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 5},
)


class SchemaGenerator:
    """A generator of random schemas."""

    def __init__(self, source: random.Random) -> None:
        self._random = source
        self._names = 0
        self._open_records: list[str] = []

    def record(self, depth: int = 3) -> Schema:
        """Return a record with random fields."""
        name = self._name("Record")
        self._open_records.append(name)
        fields = [{"name": f"f{index}", "type": self.type(depth)} for index in range(self._random.randrange(1, 6))]
        self._open_records.pop()
        return {"type": "record", "name": name, "fields": fields}

    def type(self, depth: int) -> Schema:
        """Return a random type with up to `depth` levels."""
        choice = self._random.randrange(12 if depth else 7)
        if choice < 3:
            return self._random.choice(PRIMITIVES)
        if choice < 5:
            return self._random.choice(LOGICAL_TYPES)
        if choice == 5:
            return self._named()
        if choice in (6, 7):
            others = [
                self._random.choice((*PRIMITIVES, self._named(), *LOGICAL_TYPES)) if not depth else self._branch(depth)
            ]
            branches = ["null", *others]
            self._random.shuffle(branches)
            return branches
        if choice == 8:
            return {"type": "array", "items": self.type(depth - 1)}
        if choice == 9:
            return {"type": "map", "values": self.type(depth - 1)}
        if choice == 10:
            return self._union(depth)
        return self.record(depth - 1)

    def _branch(self, depth: int) -> Schema:
        if self._open_records and not self._random.randrange(6):
            return self._random.choice(self._open_records)
        while isinstance(branch := self.type(depth - 1), list):
            pass
        return branch

    def _union(self, depth: int) -> Schema:
        branches: dict[str, Schema] = {"null": "null"} if self._random.randrange(2) else {}
        for _ in range(self._random.randrange(2, 5)):
            branch = self._branch(depth)
            if branch in self._open_records and "null" not in branches:
                continue  # no payload would be finite
            kind = branch if isinstance(branch, str) else branch["type"]
            branches[branch["name"] if kind in ("record", "enum", "fixed") else kind] = branch
        return list(branches.values()) or ["null"]

    def _named(self) -> Schema:
        choice = self._random.randrange(5)
        if choice == 0:
            return {
                "type": "enum",
                "name": self._name("Enum"),
                "symbols": ["A", "B", "C"][: self._random.randrange(1, 4)],
            }
        if choice == 1:
            return {"type": "fixed", "name": self._name("Uuid"), "size": 16, "logicalType": "uuid"}
        if choice == 2:
            return {"type": "fixed", "name": self._name("Duration"), "size": 12, "logicalType": "duration"}
        size = self._random.randrange(1, 20)
        fixed = {"type": "fixed", "name": self._name("Fixed"), "size": size}
        return fixed if choice == 3 else fixed | {"logicalType": "decimal", "precision": min(38, 2 * size), "scale": 1}

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"


class PayloadGenerator:
    """A generator of random payloads of a schema. Numbers are often extreme, and blocks of arrays are split."""

    def __init__(self, source: random.Random, schema: Schema, *, is_extreme: bool = True) -> None:
        self._random = source
        self._schema = schema
        self._is_extreme = is_extreme
        self._named: dict[str, Schema] = {}
        self._collect(schema)

    def generate(self) -> bytes:
        """Return a payload."""
        out = bytearray()
        self._write(out, self._schema, 0)
        return bytes(out)

    def _collect(self, schema: Schema) -> None:
        if isinstance(schema, list):
            for branch in schema:
                self._collect(branch)
        elif isinstance(schema, dict):
            if "name" in schema:
                self._named[schema["name"]] = schema
            for field in schema.get("fields", ()):
                self._collect(field["type"])
            for key in ("items", "values"):
                self._collect(schema.get(key))

    def _write(self, out: bytearray, schema: Schema, depth: int) -> None:
        schema = self._named.get(schema, schema) if isinstance(schema, str) else schema
        if isinstance(schema, list):
            is_too_deep = depth > DEPTH_MAX and "null" in schema
            index = schema.index("null") if is_too_deep else self._random.randrange(len(schema))
            write_number(out, index)
            self._write(out, schema[index], depth + 1)
            return
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind:
            case "boolean":
                out.append(self._random.randrange(2))
            case "int" | "long":
                write_number(out, self._number(schema, 32 if kind == "int" else 64))
            case "float":
                out += struct.pack(
                    "<f", self._random.choice((0.1, -0.0, 1e-40, float("inf"), float("nan"), 16777216.0))
                )
            case "double":
                out += struct.pack("<d", self._random.choice((0.1, 1e300, -float("inf"), self._random.random())))
            case "bytes" | "string":
                self._write_with_length(out, self._text(schema, kind))
            case "fixed":
                out += self._fixed(schema)
            case "enum":
                write_number(out, self._random.randrange(len(schema["symbols"])))
            case "array":
                self._write_blocks(out, depth, lambda: self._item(schema["items"], depth))
            case "map":
                self._write_blocks(out, depth, lambda: self._entry(schema["values"], depth))
            case "record":
                for field in schema["fields"]:
                    self._write(out, field["type"], depth + 1)

    def _item(self, schema: Schema, depth: int) -> bytes:
        out = bytearray()
        self._write(out, schema, depth + 1)
        return bytes(out)

    def _entry(self, schema: Schema, depth: int) -> bytes:
        out = bytearray()
        self._write_with_length(out, self._random.choice((b"a", b"b", b"", "schl\u00fcssel".encode())))
        self._write(out, schema, depth + 1)
        return bytes(out)

    def _write_blocks(self, out: bytearray, depth: int, generate: Callable[[], bytes]) -> None:
        while depth <= DEPTH_MAX and self._random.randrange(3):
            items = [generate() for _ in range(self._random.randrange(1, 4))]
            if self._random.randrange(4):
                write_number(out, len(items))
            else:
                write_number(out, -len(items))
                write_number(out, sum(map(len, items)))
            out += b"".join(items)
        out.append(0)

    def _number(self, schema: Schema, bits: int) -> int:
        logical_type = schema.get("logicalType", "") if isinstance(schema, dict) else ""
        if logical_type and (self._random.randrange(10) or not self._is_extreme):
            if logical_type == "date":
                return self._random.randrange(-700_000, 2_900_000)
            unit = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}[logical_type.rpartition("-")[2]]
            seconds = 86_400 if logical_type.startswith("time-") else 9 * 10**9
            return self._random.randrange(seconds) * unit + self._random.choice((0, unit // 1000 * 7, 1, unit // 2))
        return self._random.choice((self._random.randrange(-64, 64), self._random.getrandbits(bits) - (1 << bits - 1)))

    def _fixed(self, schema: Schema) -> bytes:
        if schema.get("logicalType") == "decimal" and not self._is_extreme:
            limit = min(10 ** schema["precision"], 1 << 8 * schema["size"] - 1) - 1
            return self._random.randint(-limit, limit).to_bytes(schema["size"], "big", signed=True)
        return self._random.randbytes(schema["size"])

    def _text(self, schema: Schema, kind: str) -> bytes:
        logical_type = schema.get("logicalType", "") if isinstance(schema, dict) else ""
        if logical_type == "uuid":
            return str(UUID(bytes=self._random.randbytes(16))).encode()
        if logical_type == "decimal":
            digits = self._random.randrange(1, schema["precision"] + (2 if self._is_extreme else 1))
            unscaled = self._random.randrange(-(10**digits) + 1, 10**digits)
            return unscaled.to_bytes(unscaled.bit_length() // 8 + 1 + self._random.randrange(2), "big", signed=True)
        if kind == "bytes":
            return self._random.randbytes(self._random.randrange(20))
        return self._random.choice(("", "x", "Z\u00fcrich", "\U0001f600" * 3, "a longer text " * 3)).encode()

    def _write_with_length(self, out: bytearray, data: bytes) -> None:
        write_number(out, len(data))
        out += data


def write_number(out: bytearray, number: int) -> None:
    """Append a zigzag varint."""
    raw = number << 1 if number >= 0 else (-number << 1) - 1
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


# fastavro


class FastavroReader:
    """A reader that compares JSON forms with the values that fastavro reads."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._parsed = fastavro.parse_schema(schema)
        self._named: dict[str, Schema] = {}

    def matches(self, payload: bytes, form: JsonForm) -> bool:
        """Return whether fastavro reads the whole payload as the value with this JSON form."""
        stream = io.BytesIO(payload)
        value = fastavro.schemaless_reader(stream, self._parsed, None)
        return stream.tell() == len(payload) and self._matches(self._schema, value, form)

    def _matches(self, schema: Schema, value: Any, form: JsonForm) -> bool:
        if isinstance(schema, str):
            schema = self._named.get(schema, {"type": schema})
        if isinstance(schema, list):
            return any(self._matches_branch(branch, value, form) for branch in schema)
        if "name" in schema:
            self._named[schema["name"]] = schema
        match schema["type"]:
            case "record":
                fields = {field["name"]: field["type"] for field in schema["fields"]}
                return is_object(form, fields) and all(
                    self._matches(fields[name], value[name], form[name]) for name in fields
                )
            case "map":
                return is_object(form, value) and all(
                    self._matches(schema["values"], value[name], form[name]) for name in value
                )
            case "array":
                return len(value) == len(form) and all(
                    self._matches(schema["items"], *pair) for pair in zip(value, form, strict=True)
                )
        return is_same_scalar(schema, value, form)

    def _matches_branch(self, branch: Schema, value: Any, form: JsonForm) -> bool:
        name = branch if isinstance(branch, str) else branch.get("name", branch["type"])
        try:
            if isinstance(form, dict) and form.keys() == {name} and self._matches(branch, value, form[name]):
                return True
            return self._matches(branch, value, form)
        except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, AssertionError, struct.error):
            return False  # the value is of another branch


def is_object(form: JsonForm, names: Any) -> bool:
    """Return whether a form is an object with these fields, in their order."""
    return isinstance(form, dict) and list(form) == list(names)


def is_same_scalar(schema: Schema, value: Any, form: JsonForm) -> bool:
    """Return whether a JSON form is that of a value from fastavro."""
    logical_type = schema.get("logicalType", "")
    if schema["type"] == "null":
        return value is None and form is None
    if schema["type"] == "float":
        return struct.pack("<f", float(form)) == struct.pack("<f", value)
    if logical_type == "duration":
        return list(form.items()) == list(
            zip(("months", "days", "milliseconds"), struct.unpack("<III", value), strict=True)
        )
    if logical_type == "uuid" and schema["type"] == "fixed":
        return bool(form == str(UUID(bytes=value)))
    if logical_type.endswith("nanos"):  # fastavro does not support them
        seconds, rest = divmod(value, 10**9)
        text = (datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat()
        return bool(form == f"{text}.{rest:09}" + "Z" * (logical_type == "timestamp-nanos"))
    expected = get_scalar_form(value)
    return type(form) is type(expected) and bool(form == expected)


# Arrow


def get_forms(decoded: DecodedColumn, field: pa.Field) -> list[Any]:
    """Return the JSON forms of a decoded column, by the rules in `codec`. JSON text is a `msgspec.Raw`."""
    forms = [get_form(value, field) for value in decoded.array.to_pylist()]
    for index, leftover in decoded.leftovers.items():
        forms[index] = merge(forms[index], leftover)
    return forms


def get_form(value: Any, field: pa.Field) -> Any:
    """Return the JSON form of an element of an array."""
    if value is None:
        return None
    if field.metadata and FORMAT_KEY in field.metadata:
        return msgspec.Raw(value.encode())
    if pa.types.is_struct(field.type):
        return {child.name: get_form(value[child.name], child) for child in field.type}
    if pa.types.is_map(field.type):
        return {key: get_form(each, field.type.item_field) for key, each in value}
    if pa.types.is_list(field.type):
        return [get_form(each, field.type.value_field) for each in value]
    if pa.types.is_float32(field.type):
        return format_single_float(value)
    return get_scalar_form(value)


def get_scalar_form(value: Any) -> JsonForm:
    """Return the JSON form of a Python object."""
    match value:
        case float():
            return format_float(value)
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            spec = "microseconds" if value.microsecond % 1000 else "milliseconds" if value.microsecond else "seconds"
            return value.replace(tzinfo=None).isoformat(timespec=spec) + ("Z" if value.tzinfo else "")
        case date():
            return value.isoformat()
        case time():
            spec = "microseconds" if value.microsecond % 1000 else "milliseconds" if value.microsecond else "seconds"
            return value.isoformat(timespec=spec)
        case bool() | int() | str() | Decimal():
            return value
        case UUID():
            return str(value)
    raise TypeError(value)


def merge(form: Any, leftover: Any) -> Any:
    """Merge a leftover over a JSON form."""
    if isinstance(leftover, dict) and isinstance(form, dict):
        return form | {key: merge(form.get(key), value) for key, value in leftover.items()}
    return leftover
