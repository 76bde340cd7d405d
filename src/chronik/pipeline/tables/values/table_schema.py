"""The schema of a decoded table: its columns, where their values come from, and what happens to values that do not fit.

A schema is declared in TOML or JSON, or inferred:

    unknown_fields = "rescue"

    [columns]
    id = "bigint"
    amount = { type = "decimal(10,2)", required = true }
    customer_id = { type = "bigint", path = "$.customer.id" }

The fields of the table's own schema have metadata that describe its columns, both those that were declared and those
that landing added. So a change of columns and of what they mean is one commit of the table.
"""

from __future__ import annotations

import json
import math
import pathlib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, time
from enum import StrEnum
from typing import Any, Final, TypeVar

import pyarrow as pa

from chronik.errors import ConfigError
from chronik.formats.codec import ALIASES_KEY, DEFAULT_KEY, MESSAGE_KEY, NUMBER_KEY
from chronik.pipeline.tables.layout import RESERVED_NAMES, SYSTEM_NAMES, list_value_fields
from chronik.pipeline.tables.values.column_names import PATH_KEY, choose_column_name, find_name_problem, get_json_key
from chronik.pipeline.tables.values.sql_types import (
    FORMAT_KEY,
    JSON_FORMAT,
    collect_element_formats,
    format_sql_type,
    get_json_format,
    parse_sql_columns,
    parse_sql_type,
    restore_element_formats,
)
from chronik.wording import format_spelling_suggestion

COLUMNS_MAX: Final = 500
"""Maximum number of columns, including fields of nested objects.

Objects with more keys use them as data and not as names (`{"user-17": …}`). Every file and query plan would contain all
of these columns.
"""

SETTINGS_KEY: Final = b"chronik.column"
"""Key of the field metadata with the column's other settings, as JSON."""

NAME_KEY_PREFIX: Final = b"chronik.name."
"""Prefix of keys of field metadata that end with another name of the field. Delta tables merge such keys."""

NUMBER_KEY_PREFIX: Final = b"chronik.number."
"""Prefix of keys of field metadata that end with another Protobuf message type that has the field; the value is the
field's number in it."""

ORIGIN_KEYS: Final = (ALIASES_KEY, NUMBER_KEY, DEFAULT_KEY, MESSAGE_KEY)
"""Keys of field metadata by which fields of writers' schemas are recognized, or that describe them."""

COMMENT_KEY: Final = b"comment"
"""Key of the field metadata with a column's comment, as in Spark."""

TABLE_NAME: Final = re.compile("[A-Za-z0-9_]{1,128}")
"""Table names that every catalog accepts and SQL can use without quotes."""

COMMENT_CHARACTERS_MAX: Final = 4000
"""Maximum length of a table's comment, which is delta-rs's limit."""

RESERVED_PROPERTIES: Final = ("chronik.", "delta.")
"""Prefixes of table properties that a schema cannot set, because landing and Delta readers depend on them."""

Path = tuple[str, ...]
"""The sequence of keys from the root of a JSON value to a nested value."""

EnumT = TypeVar("EnumT", bound=StrEnum)


class UnknownFields(StrEnum):
    """The policy for JSON fields that have no column in the table."""

    COLUMN = "column"
    """A column is added."""
    RESCUE = "rescue"
    """The field is stored in `_rescued`."""
    DROP = "drop"
    """The field is dropped."""


class InvalidValues(StrEnum):
    """The policy for JSON values that do not fit the type of their column."""

    RESCUE = "rescue"
    """The column is null, and the value is stored in `_rescued`."""
    DEAD_LETTER = "dead_letter"
    """The record becomes a dead-letter record."""
    CAST = "cast"
    """The value is converted if nothing is lost (`"5"` to 5), and rescued otherwise."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a decoded table."""

    name: str
    data_type: pa.DataType
    path: Path
    """The JSON path from which the column's values are read."""
    format: str | None = None
    """JSON format of the column's values, or None for the default format of the type."""
    zone: str | None = None
    """Time zone of timestamps that are written without a UTC offset; None for UTC."""
    required: bool = False
    """Whether a record without a value for this column becomes a dead-letter record."""
    default: Any = None
    """JSON value to use for records without a value for this column."""
    invalid_values: InvalidValues | None = None
    """Policy for values that do not fit the column's type; None for the schema's policy."""
    comment: str | None = None
    origin: tuple[tuple[bytes, bytes], ...] = ()
    """Metadata of the writer's field for which the column was added: its aliases, number and default."""

    @property
    def type_name(self) -> str:
        return format_sql_type(self.data_type, self.format)

    def to_field(self, *, is_declared: bool = True) -> pa.Field:
        """Return the Arrow field of the column, from which `restore_column_from_field` restores it."""
        metadata = {**dict(self.origin), **collect_element_formats(self.data_type)}
        if self.path != (self.name,):
            metadata[PATH_KEY] = json.dumps(self.path)
        if self.format is not None:
            metadata[FORMAT_KEY] = self.format
        if self.comment is not None:
            metadata[COMMENT_KEY] = self.comment
        settings = {
            name: value
            for name, value in (
                ("declared", is_declared or None),
                ("zone", self.zone),
                ("required", self.required or None),
                ("default", self.default),
                ("invalid_values", self.invalid_values),
            )
            if value is not None
        }
        if settings:
            metadata[SETTINGS_KEY] = json.dumps(settings)
        return pa.field(self.name, self.data_type, metadata=metadata or None)


def restore_column_from_field(arrow_field: pa.Field) -> Column:
    """Restore a column and its settings from the Arrow field to which `Column.to_field` converted it."""
    metadata = arrow_field.metadata or {}
    path = json.loads(metadata[PATH_KEY]) if PATH_KEY in metadata else [arrow_field.name]
    settings = json.loads(metadata.get(SETTINGS_KEY, b"{}"))
    comment = metadata.get(COMMENT_KEY)
    return Column(
        arrow_field.name,
        restore_element_formats(arrow_field.type, metadata),
        tuple(path),
        get_json_format(arrow_field),
        settings.get("zone"),
        settings.get("required", False),
        settings.get("default"),
        InvalidValues(settings["invalid_values"]) if "invalid_values" in settings else None,
        comment.decode() if comment else None,
        tuple(sorted((key, value) for key, value in metadata.items() if _is_origin_key(key))),
    )


def _is_origin_key(key: bytes) -> bool:
    return key in ORIGIN_KEYS or key.startswith((NAME_KEY_PREFIX, NUMBER_KEY_PREFIX))


def without_declared_settings(column: Column) -> Column:
    """Return the column without its declared settings. It still reads the same JSON values."""
    return Column(column.name, column.data_type, column.path, column.format, column.zone, origin=column.origin)


def is_declared(arrow_field: pa.Field) -> bool:
    """Return whether a column was declared in a schema, as opposed to added by landing."""
    return bool(json.loads((arrow_field.metadata or {}).get(SETTINGS_KEY, b"{}")).get("declared", False))


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The declared schema of a table. Without declared columns, all columns are inferred."""

    columns: tuple[Column, ...] = ()
    unknown_fields: UnknownFields = UnknownFields.COLUMN
    invalid_values: InvalidValues = InvalidValues.RESCUE
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    """Table properties to set, for other tools."""
    name: str | None = None
    """Name of the table in catalogs, or None for the topic's name."""

    def resolve_columns(self, table: pa.Schema) -> tuple[Column, ...]:
        """Return all value columns of a table, restored from its Arrow schema, in their order."""
        return tuple(map(restore_column_from_field, list_value_fields(table)))

    @property
    def rejects_records(self) -> bool:
        """Whether valid JSON objects can become dead-letter records."""
        return any(
            column.required or self.get_invalid_values_policy(column) is InvalidValues.DEAD_LETTER
            for column in self.columns
        ) or (self.invalid_values is InvalidValues.DEAD_LETTER)

    @property
    def is_lossy(self) -> bool:
        """Whether some JSON values cannot be restored from rows, because values are dropped, converted or added."""
        return (
            self.unknown_fields is UnknownFields.DROP
            or any(
                column.default is not None or self.get_invalid_values_policy(column) is InvalidValues.CAST
                for column in self.columns
            )
            or self.invalid_values is InvalidValues.CAST
        )

    def to_arrow(self, table: pa.Schema) -> pa.Schema:
        """Return the table's Arrow schema with the column settings of this declared schema."""
        declared = {column.name: column for column in self.columns}
        fields = []
        for each in table:
            if each.name in declared:
                each = replace(declared[each.name], origin=restore_column_from_field(each).origin).to_field()
            elif is_declared(each):
                each = without_declared_settings(restore_column_from_field(each)).to_field(is_declared=False)
            fields.append(each)
        return pa.schema(fields)

    def get_invalid_values_policy(self, column: Column) -> InvalidValues:
        """Return the policy for values that do not fit the column."""
        return column.invalid_values or self.invalid_values


INFERRED: Final = TableSchema()
"""The schema of tables without a declared one: all columns are inferred."""


def is_parsable_key(key: str) -> bool:
    """Return whether the typed JSON parser supports a key: it rejects quotes, backslashes and control characters."""
    return not any(each in '"\\' or each < " " for each in key)


def parse_schema_text(text: str) -> TableSchema:
    """Parse a list of columns, such as `id bigint, name string`. Other fields are rescued.

    The names are those of the fields; a column whose field has another name than a table allows is renamed.

    Raises:
        ConfigError: The text is not a valid list of columns.
    """
    columns: list[Column] = []
    for source, kind in parse_sql_columns(text):
        name = choose_column_name(source, [column.name for column in columns])
        columns.append(Column(name, kind.data_type, (source,), kind.format))
    return check_schema(TableSchema(tuple(columns), UnknownFields.RESCUE))


def parse_schema_document(document: Mapping[str, Any], *, is_stored: bool = False) -> TableSchema:
    """Parse a schema from the content of a TOML or JSON file. Fields without a column are rescued by default.

    A schema that a table has stored may have names of columns that were not reserved then.

    Raises:
        ConfigError: The schema is invalid.
    """
    _check_keys(document, ("columns", "unknown_fields", "invalid_values", "name", "comment", "properties"), "schema")
    columns = document.get("columns", {})
    if not isinstance(columns, Mapping):
        raise ConfigError('columns: expected a table, such as [columns] id = "bigint"')
    properties = document.get("properties", {})
    if not isinstance(properties, Mapping) or not all(isinstance(value, str) for value in properties.values()):
        raise ConfigError("properties: expected texts")
    for key in properties:
        if key.startswith(RESERVED_PROPERTIES):
            raise ConfigError(f"properties: {key} is reserved")
    name = _parse_optional_text(document, "name", "schema")
    if name is not None and not TABLE_NAME.fullmatch(name):
        raise ConfigError(f"name: expected at most 128 letters, digits and underscores, not {name!r}")
    comment = _parse_optional_text(document, "comment", "schema") or None  # Delta stores no comment as an empty one
    if comment is not None and len(comment) > COMMENT_CHARACTERS_MAX:
        raise ConfigError(f"comment: at most {COMMENT_CHARACTERS_MAX} characters, not {len(comment)}")
    return check_schema(
        TableSchema(
            tuple(_parse_column(name, value) for name, value in columns.items()),
            _parse_choice(UnknownFields, document.get("unknown_fields", UnknownFields.RESCUE), "unknown_fields"),
            _parse_choice(InvalidValues, document.get("invalid_values", InvalidValues.RESCUE), "invalid_values"),
            comment,
            dict(properties),
            name,
        ),
        SYSTEM_NAMES if is_stored else RESERVED_NAMES,
    )


def parse_schema_json(text: str) -> TableSchema:
    """Parse a schema from a JSON document.

    Raises:
        ConfigError: The schema is invalid.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"the schema is not valid JSON: {error}") from None
    if not isinstance(document, Mapping):
        raise ConfigError("the schema is not a JSON object")
    return parse_schema_document(document)


def read_schema(text: str) -> TableSchema:
    """Read a schema from a TOML or JSON file, or parse a list of columns, such as `id bigint, name string`.

    Raises:
        ConfigError: The file cannot be read, or the schema is invalid.
    """
    if not text.endswith((".toml", ".json")):
        try:
            return parse_schema_text(text)
        except ConfigError as error:
            if len(text.split()) == 1:  # a list of columns has a name and a type
                raise ConfigError(f"{error}; the name of a schema file ends in .toml or .json") from None
            raise
    try:
        content = pathlib.Path(text).read_text(encoding="utf-8")
        if text.endswith(".json"):
            return parse_schema_json(content)
        return parse_schema_document(tomllib.loads(content))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError, ConfigError) as error:
        raise ConfigError(f"{text}: {error}") from None


COLUMN_KEYS: Final = ("type", "path", "format", "zone", "required", "default", "invalid_values", "comment")


def _parse_column(name: str, value: Any) -> Column:
    where = f"column {name!r}"
    if isinstance(value, str):
        value = {"type": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise ConfigError(f'{where}: expected a type, such as {name} = "bigint" or {name} = {{ type = "bigint" }}')
    _check_keys(value, COLUMN_KEYS, where)
    try:
        kind = parse_sql_type(value["type"])
        path = parse_path(value["path"]) if "path" in value else (name,)
        policy = value.get("invalid_values")
        required = value.get("required", False)
        if not isinstance(required, bool):
            raise ConfigError("required: expected true or false")
        _check_default(value.get("default"))
        return Column(
            name,
            kind.data_type,
            path,
            _parse_optional_text(value, "format", where) or kind.format,
            _parse_optional_text(value, "zone", where),
            required,
            value.get("default"),
            None if policy is None else _parse_choice(InvalidValues, policy, "invalid_values"),
            _parse_optional_text(value, "comment", where) or None,
        )
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _check_default(value: Any) -> None:
    """Check that a default is a JSON value. TOML also has dates, times, nan and inf, and Python's JSON parser NaN.

    Raises:
        ConfigError: It is not.
    """
    if isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            _check_default(each)
    elif isinstance(value, date | time):
        kind = type(value).__name__
        raise ConfigError(f'default: a {kind} is not a JSON value; write it as a text: "{value.isoformat()}"')
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"default: {value} is not a JSON value")


def _parse_optional_text(values: Mapping[str, Any], key: str, where: str) -> str | None:
    value = values.get(key)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{where}: {key}: expected a text")
    return value


def _parse_choice(choices: type[EnumT], value: Any, name: str) -> EnumT:
    try:
        return choices(value)
    except ValueError:
        suggestion = format_spelling_suggestion(str(value), [choice.value for choice in choices])
        raise ConfigError(f"invalid {name} = {value!r}: expected {', '.join(choices)}{suggestion}") from None


def _check_keys(values: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in values:
        if key not in known:
            suggestion = format_spelling_suggestion(key, known) or f"; expected {', '.join(known)}"
            raise ConfigError(f"{where}: unknown key {key!r}{suggestion}")


def check_schema(schema: TableSchema, reserved: frozenset[str] = RESERVED_NAMES) -> TableSchema:
    """Return the schema if its columns can form a table.

    Raises:
        ConfigError: A name or path is invalid or used twice, or there are too many columns.
    """
    names: list[str] = []
    for column in schema.columns:
        problem = find_name_problem(column.name, names, reserved) or find_type_problem(column.data_type)
        if problem is not None:
            raise ConfigError(f"column {column.name!r}: {problem}")
        if column.required and column.default is not None:
            raise ConfigError(f"column {column.name!r}: a required column has no default")
        if not all(map(is_parsable_key, column.path)):
            raise ConfigError(
                f"column {column.name!r}: path {format_path(column.path)} has a quote, backslash or control character:"
                " remove the column, and read the field from _rescued"
            )
        names.append(column.name)
    if sum(count_leaf_columns(column.data_type) for column in schema.columns) > COLUMNS_MAX:
        raise ConfigError(f"the schema has more than {COLUMNS_MAX} columns, including nested fields")
    check_column_paths(schema.columns)
    return schema


def check_column_paths(columns: Iterable[Column]) -> None:
    """Check that no two columns read the same value, and none reads a part of another's.

    Raises:
        ConfigError: Two columns overlap.
    """
    by_path: dict[Path, str] = {}
    for column in sorted(columns, key=lambda column: len(column.path)):
        for length in range(1, len(column.path) + 1):
            other = by_path.get(column.path[:length])
            if other is not None:
                raise ConfigError(
                    f"columns {other!r} and {column.name!r} overlap: {format_path(column.path)} is part of"
                    f" {format_path(column.path[:length])}"
                )
        by_path[column.path] = column.name


def find_type_problem(data_type: pa.DataType) -> str | None:
    """Return the reason why a type is not valid for a column, including names of nested fields, or None."""
    if pa.types.is_struct(data_type):
        if data_type.num_fields == 0:
            return "an object without fields has no type"
        names: list[str] = []
        for each in data_type:
            problem = find_name_problem(each.name, names) or find_type_problem(each.type)
            if not is_parsable_key(get_json_key(each)):
                problem = "the name has a quote, backslash or control character"
            if problem is not None:
                return f"nested field {each.name!r}: {problem}"
            names.append(each.name)
        return None
    if pa.types.is_list(data_type):
        return find_type_problem(data_type.value_type)
    return find_type_problem(data_type.item_type) if pa.types.is_map(data_type) else None


def count_leaf_columns(data_type: pa.DataType) -> int:
    """Return the number of columns for which a type counts: one for each nested field."""
    if pa.types.is_struct(data_type):
        return sum(count_leaf_columns(each.type) for each in data_type)
    if pa.types.is_map(data_type):
        return count_leaf_columns(data_type.item_type)
    return count_leaf_columns(data_type.value_type) if pa.types.is_list(data_type) else 1


_PATH_STEPS: Final = re.compile(r"""\.(?P<plain>[^.\[\]'"\s]+)|\[(?P<quote>['"])(?P<quoted>.*?)(?P=quote)\]""")


def parse_path(text: Any) -> Path:
    """Parse a path such as `$.customer.id` or `$['first name']`.

    Raises:
        ConfigError: The text is not a path, or selects elements of a list.
    """
    if not isinstance(text, str):
        raise ConfigError("path: expected a text such as $.customer.id")
    keys: list[str] = []
    position = 1 if text.startswith("$") else 0
    while position and position < len(text):
        match = _PATH_STEPS.match(text, position)
        if match is None:
            if re.match(r"\[[\d*]", text[position:]):
                raise ConfigError(f"invalid path {text!r}: paths into lists are not supported; use an array column")
            break
        keys.append(match["plain"] or match["quoted"])
        position = match.end()
    if not keys or position < len(text):
        raise ConfigError(f"invalid path {text!r}: expected a path such as $.customer.id or $['first name']")
    return tuple(keys)


def format_path(path: Path) -> str:
    """Return a path in the format that `parse_path` parses."""
    return "$" + "".join(map(_format_path_step, path))


def _format_path_step(key: str) -> str:
    if re.fullmatch(r"\w[\w-]*", key):
        return f".{key}"
    return f'["{key}"]' if "'" in key else f"['{key}']"  # paths of columns have no double quotes


def build_schema_document(schema: TableSchema) -> dict[str, Any]:
    """Return a schema as the content of a TOML or JSON file."""
    document: dict[str, Any] = {
        "unknown_fields": schema.unknown_fields.value,
        "invalid_values": schema.invalid_values.value,
        "columns": {column.name: _build_column_document(column) for column in schema.columns},
    }
    if schema.name is not None:
        document["name"] = schema.name
    if schema.comment is not None:
        document["comment"] = schema.comment
    if schema.properties:
        document["properties"] = dict(schema.properties)
    return document


def _build_column_document(column: Column) -> str | dict[str, Any]:
    document: dict[str, Any] = {"type": column.type_name}
    if column.path != (column.name,):
        document["path"] = format_path(column.path)
    if column.format not in (None, JSON_FORMAT):
        document["format"] = column.format
    for key in ("zone", "default", "comment"):
        if getattr(column, key) is not None:
            document[key] = getattr(column, key)
    if column.required:
        document["required"] = True
    if column.invalid_values is not None:
        document["invalid_values"] = column.invalid_values.value
    return document["type"] if len(document) == 1 else document
