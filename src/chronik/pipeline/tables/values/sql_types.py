"""Spark SQL types as text, such as `array<struct<id: bigint, tags: map<string, json>>>`, and as Arrow types.

`json` is a type of its own: any JSON value as text, stored in a string column whose field metadata says so. Names of
nested fields are those in JSON objects; a field gets another name in the table if its own is not allowed there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from chronik.errors import ConfigError
from chronik.pipeline.tables.values.column_names import choose_column_name, get_json_key, with_json_key
from chronik.wording import format_spelling_suggestion

FORMAT_KEY: Final = b"chronik.format"
"""Key of the field metadata with the JSON format of the field's values, such as `epoch_ms`."""

JSON_FORMAT: Final = "json"
"""Format of a string column that stores any JSON value as text."""

DECIMAL_PRECISION_MAX: Final = 38
DEFAULT_DECIMAL: Final = (10, 0)
"""Precision and scale of `decimal` without parameters, as in Spark."""

SIMPLE_TYPES: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}

_NAMES: Final[dict[pa.DataType, str]] = {
    **{data_type: name for name, data_type in reversed(SIMPLE_TYPES.items()) if name != "timestamp_ltz"},
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
}

_TOKENS: Final = re.compile(r"\s*(?:(?P<name>`(?:[^`]|``)*`|\w+)|(?P<symbol>[<>(),:])|(?P<end>$)|(?P<other>.))")


class SqlType(NamedTuple):
    """An Arrow type, and the JSON format of its values unless it is the default."""

    data_type: pa.DataType
    format: str | None = None

    def to_field(self, name: str) -> pa.Field:
        """Return an Arrow field of this type."""
        return pa.field(name, self.data_type, metadata=None if self.format is None else {FORMAT_KEY: self.format})


def get_json_format(field: pa.Field) -> str | None:
    """Return the JSON format of a field's values, or None for the default format of the field's type."""
    value = (field.metadata or {}).get(FORMAT_KEY)
    return value.decode() if value else None


def collect_element_formats(data_type: pa.DataType, path: bytes = FORMAT_KEY) -> dict[bytes, str]:
    """Return the metadata of a column that stores the JSON formats of its list elements and map values.

    Delta tables store metadata of columns and of nested fields, but not of elements and map values.
    """
    found: dict[bytes, str] = {}
    for name, child in _iter_children(data_type):
        inner = path + b"." + name.encode()
        format = get_json_format(child)
        if format is not None and not pa.types.is_struct(data_type):
            found[inner] = format
        found |= collect_element_formats(child.type, inner)
    return found


def restore_element_formats(
    data_type: pa.DataType, metadata: Mapping[bytes, bytes], path: bytes = FORMAT_KEY
) -> pa.DataType:
    """Restore the JSON formats of list elements and map values from the column's metadata into its type."""
    if not any(key.startswith(path + b".") for key in metadata):
        return data_type
    children: list[pa.Field] = []
    for name, child in _iter_children(data_type):
        inner = path + b"." + name.encode()
        child = child.with_type(restore_element_formats(child.type, metadata, inner))
        children.append(child.with_metadata({FORMAT_KEY: metadata[inner]}) if metadata.get(inner) else child)
    if pa.types.is_struct(data_type):
        return pa.struct(children)
    if pa.types.is_map(data_type):
        return pa.map_(data_type.key_field, children[0])
    return pa.list_(children[0]) if children else data_type


def _iter_children(data_type: pa.DataType) -> Iterator[tuple[str, pa.Field]]:
    if pa.types.is_struct(data_type):
        yield from ((field.name, field) for field in data_type)
    elif pa.types.is_map(data_type):
        yield "value", data_type.item_field
    elif pa.types.is_list(data_type):
        yield "element", data_type.value_field


def parse_sql_type(text: str) -> SqlType:
    """Parse a Spark SQL type.

    Raises:
        ConfigError: The text is not a supported type.
    """
    parser = _TypeParser(text)
    found = parser.parse_type()
    parser.expect_end()
    return found


def parse_sql_columns(text: str) -> list[tuple[str, SqlType]]:
    """Parse a list of columns, such as `id bigint, name string`.

    Raises:
        ConfigError: The text is not a list of columns.
    """
    parser = _TypeParser(text)
    found = list(parser.parse_fields())
    parser.expect_end()
    return found


class _TypeParser:
    """A recursive-descent parser of Spark's type syntax."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [
            (match.lastgroup, match.group(match.lastgroup or 0), match.start(match.lastgroup or 0))
            for match in _TOKENS.finditer(text)
        ]
        self._position = 0

    def parse_type(self) -> SqlType:
        name = self._consume_name("a type").lower()
        if name == "array":
            self._expect("<")
            element = self.parse_type()
            self._expect(">")
            return SqlType(pa.list_(element.to_field("element")))
        if name == "map":
            return self._parse_map()
        if name == "struct":
            self._expect("<")
            fields: list[pa.Field] = []
            for source, kind in self.parse_fields():
                field_name = choose_column_name(source, [field.name for field in fields], frozenset())
                fields.append(with_json_key(kind.to_field(field_name), source))
            self._expect(">")
            return SqlType(pa.struct(fields))
        if name in ("decimal", "numeric", "dec"):
            return SqlType(self._parse_decimal())
        if name == "json":
            return SqlType(pa.string(), JSON_FORMAT)
        if name == "variant":
            raise self._error("variant columns are not supported: use json, which stores the value as text")
        if name not in SIMPLE_TYPES:
            names = [*SIMPLE_TYPES, "decimal", "json", "array", "map", "struct"]
            raise self._error(f"unknown type {name!r}{format_spelling_suggestion(name, names)}")
        return SqlType(SIMPLE_TYPES[name])

    def parse_fields(self) -> Iterator[tuple[str, SqlType]]:
        """Parse `name type` or `name: type`, separated by commas."""
        taken: set[str] = set()
        while True:
            name = self._consume_name("a name")
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            if name in taken:
                raise self._error(f"the name {name!r} occurs twice")
            taken.add(name)
            self._consume_if_present(":")
            yield name, self.parse_type()
            if not self._consume_if_present(","):
                return

    def _parse_map(self) -> SqlType:
        self._expect("<")
        key = self.parse_type()
        if key != SqlType(pa.string()):
            raise self._error("the keys of a JSON object are strings: use map<string, …>")
        self._expect(",")
        value = self.parse_type()
        self._expect(">")
        return SqlType(pa.map_(pa.field("key", pa.string(), nullable=False), value.to_field("value")))

    def _parse_decimal(self) -> pa.DataType:
        precision, scale = DEFAULT_DECIMAL
        if self._consume_if_present("("):
            precision, scale = self._consume_number(), 0
            if self._consume_if_present(","):
                scale = self._consume_number()
            self._expect(")")
        if not 0 < precision <= DECIMAL_PRECISION_MAX or scale > precision:
            raise self._error(f"invalid decimal({precision},{scale}): at most {DECIMAL_PRECISION_MAX} digits in total")
        return pa.decimal128(precision, scale)

    def _consume_number(self) -> int:
        text = self._consume_name("a number")
        if not text.isdecimal():
            raise self._error(f"expected a number instead of {text!r}")
        return int(text)

    def _consume_name(self, expected: str) -> str:
        kind, text, _ = self._tokens[self._position]
        if kind != "name":
            raise self._error(f"expected {expected}")
        self._position += 1
        return text

    def _consume_if_present(self, symbol: str) -> bool:
        kind, text, _ = self._tokens[self._position]
        if kind != "symbol" or text != symbol:
            return False
        self._position += 1
        return True

    def _expect(self, symbol: str) -> None:
        if not self._consume_if_present(symbol):
            raise self._error(f"expected {symbol!r}")

    def expect_end(self) -> None:
        if self._tokens[self._position][0] != "end":
            raise self._error("expected the end")

    def _error(self, reason: str) -> ConfigError:
        position = self._tokens[self._position][2]
        return ConfigError(f"invalid type {self._text!r}, character {position + 1}: {reason}")


def format_sql_type(data_type: pa.DataType, format: str | None = None) -> str:
    """Return a type as `parse_sql_type` parses it. Nested fields have the names that they have in JSON objects."""
    is_a: Any = pa.types
    if format == JSON_FORMAT:
        return "json"
    if is_a.is_struct(data_type):
        fields = (f"{_quote(get_json_key(field))}: {format_field_type(field)}" for field in data_type)
        return f"struct<{', '.join(fields)}>"
    if is_a.is_map(data_type):
        return f"map<{format_sql_type(data_type.key_type)}, {format_field_type(data_type.item_field)}>"
    if is_a.is_list(data_type) or is_a.is_large_list(data_type):
        return f"array<{format_field_type(data_type.value_field)}>"
    if is_a.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if is_a.is_timestamp(data_type):
        return "timestamp" if data_type.tz else "timestamp_ntz"
    return _NAMES.get(data_type, str(data_type))


def format_field_type(field: pa.Field) -> str:
    """Return the name of a field's type in Spark SQL, or `json` for JSON text."""
    return format_sql_type(field.type, get_json_format(field))


def _quote(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else f"`{name.replace('`', '``')}`"
