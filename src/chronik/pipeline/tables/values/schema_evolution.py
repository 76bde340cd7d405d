"""Schema evolution: which columns to add to a table for fields that have none. Pure functions.

Columns and fields of nested objects are added, never changed. Fields beyond the maximum number of columns stay in
`_rescued`, and the reason is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from chronik.pipeline.tables.layout import KEY_VALUE, RESERVED_NAMES
from chronik.pipeline.tables.values.column_names import choose_column_name, get_json_key, with_json_key
from chronik.pipeline.tables.values.field_statistics import DetectedType, FieldStatistics
from chronik.pipeline.tables.values.sql_types import FORMAT_KEY
from chronik.pipeline.tables.values.table_schema import (
    COLUMNS_MAX,
    NAME_KEY_PREFIX,
    NUMBER_KEY_PREFIX,
    Column,
    Path,
    TableSchema,
    count_leaf_columns,
    format_path,
    is_declared,
    is_parsable_key,
)
from chronik.pipeline.tables.values.written_types import (
    build_key_field,
    extend_key_field,
    get_key_type,
    plan_written_columns,
)


@dataclass(frozen=True, slots=True)
class PlannedColumns:
    """The columns to add to a table, and the fields that cannot be added."""

    added: tuple[pa.Field, ...]
    """New columns, and object columns with new fields, each with its full type."""
    rejected: dict[str, str]
    """Reasons why a JSON field gets no column, by the path of the field."""


@dataclass(frozen=True, slots=True)
class EvolvedSchema:
    """The schema of a table after columns were added, and the fields that could not be added."""

    schema: pa.Schema
    rejected: dict[str, str]


def plan_new_columns(
    schema: TableSchema, table: pa.Schema, statistics: FieldStatistics, detect: Iterable[DetectedType] = ()
) -> PlannedColumns:
    """Plan the columns to add for JSON fields without a column. `statistics` describe complete records."""
    planner = _ColumnPlanner(schema.resolve_columns(table), table, tuple(detect))
    planner.plan_object_columns((), statistics)
    if statistics.json_keys is not None:
        planner.plan_key_column(statistics.json_keys)
    if statistics.written_types is None:
        return PlannedColumns(tuple(planner.added.values()), planner.rejected)
    extended = pa.schema(list(({each.name: each for each in table} | planner.added).values()))
    written = plan_written_columns(schema, extended, statistics.written_types)
    added = planner.added | {each.name: each for each in written.added}
    return PlannedColumns(tuple(added.values()), planner.rejected | written.rejected)


class _ColumnPlanner:
    """A planner that chooses columns for the fields of JSON objects."""

    def __init__(self, columns: Sequence[Column], table: pa.Schema, detect: tuple[DetectedType, ...]) -> None:
        self.added: dict[str, pa.Field] = {}
        self.rejected: dict[str, str] = {}
        self._columns = {column.path: column for column in columns}
        self._parents = {column.path[:length] for column in columns for length in range(1, len(column.path))}
        self._names = list(table.names)
        self._fields = {field.name: field for field in table}
        self._columns_left = COLUMNS_MAX - sum(count_leaf_columns(each.type) for each in table)
        self._detect = detect

    def plan_object_columns(self, path: Path, statistics: FieldStatistics) -> None:
        for key, found in statistics.fields.items():
            inner = (*path, key)
            if inner in self._columns:
                self._extend_column(self._columns[inner], found)
            elif inner in self._parents:
                self.plan_object_columns(inner, found)
            else:
                self._add_column(inner, found)

    def plan_key_column(self, statistics: FieldStatistics) -> None:
        """Plan the column with the decoded keys, or its new fields."""
        chosen = statistics.choose_type()
        if chosen is None:
            return
        known = self._fields.get(KEY_VALUE)
        if known is None:
            extended = build_key_field(chosen.data_type, chosen.format)
            leaves = count_leaf_columns(extended.type)
        else:
            extended = extend_key_field(known, extend_type(get_key_type(known), chosen.data_type))
            leaves = count_leaf_columns(extended.type) - count_leaf_columns(known.type)
        if (known is None or extended.type != known.type) and self._reserve_columns((KEY_VALUE,), leaves):
            self.added[KEY_VALUE] = extended

    def _add_column(self, path: Path, statistics: FieldStatistics) -> None:
        chosen = statistics.choose_type(self._detect)
        if chosen is None:
            return
        if not is_parsable_key(path[-1]):
            self.rejected[format_path(path)] = "the name has a quote, backslash or control character"
            return
        if not self._reserve_columns(path, count_leaf_columns(chosen.data_type)):
            return
        name = choose_column_name("_".join(path), self._names, RESERVED_NAMES)
        self._names.append(name)
        self.added[name] = Column(name, chosen.data_type, path, chosen.format).to_field(is_declared=False)

    def _extend_column(self, column: Column, statistics: FieldStatistics) -> None:
        chosen = statistics.choose_type(self._detect)
        if chosen is None:
            return
        extended = extend_type(column.data_type, chosen.data_type)
        if extended != column.data_type and self._reserve_columns(
            column.path, count_leaf_columns(extended) - count_leaf_columns(column.data_type)
        ):
            is_old_declared = is_declared(self._fields[column.name])
            self.added[column.name] = replace(column, data_type=extended).to_field(is_declared=is_old_declared)

    def _reserve_columns(self, path: Path, leaves: int) -> bool:
        if leaves > self._columns_left:
            self.rejected[format_path(path)] = f"the table would have more than {COLUMNS_MAX} columns"
            return False
        self._columns_left -= leaves
        return True


def extend_type(old_type: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return `old_type` extended by the nested fields that only `wanted` has."""
    if pa.types.is_struct(old_type) and pa.types.is_struct(wanted):
        fields = list(old_type)
        by_source = {get_json_key(field): index for index, field in enumerate(fields)}
        for field in wanted:
            source = get_json_key(field)
            if source in by_source:
                index = by_source[source]
                fields[index] = fields[index].with_type(extend_type(fields[index].type, field.type))
            else:
                name = choose_column_name(source, [each.name for each in fields], frozenset())
                by_source[source] = len(fields)
                fields.append(with_json_key(field.with_name(name), source))
        return pa.struct(fields)
    if pa.types.is_list(old_type) and pa.types.is_list(wanted):
        return pa.list_(old_type.value_field.with_type(extend_type(old_type.value_type, wanted.value_type)))
    return old_type


def reads_same_values(known: Column, declared: Column) -> bool:
    """Return whether a table's column stores the JSON values that a schema declares for it, in the same type.

    Otherwise, the rows that the table has would restore other records than those that were landed. A column may have
    more nested fields than its schema declares, because landing adds them.
    """
    extended = replace(declared, data_type=extend_type(declared.data_type, known.data_type))
    return _describe_values(known) == _describe_values(extended)


def _describe_values(column: Column) -> tuple[str, Path, str | None, str]:
    return column.type_name, column.path, column.format or _default_format(column.data_type), column.zone or "UTC"


def _default_format(data_type: pa.DataType) -> str | None:
    if pa.types.is_timestamp(data_type) or pa.types.is_date(data_type):
        return "iso8601"
    return "base64" if pa.types.is_binary(data_type) else None


def has_unchanged_columns(table: pa.Schema, written: pa.Schema) -> bool:
    """Return whether a table still has all columns of the written files, with the same types and settings.

    The table may have more columns, and more fields in nested objects.
    """
    fields = {field.name: field for field in table}
    return all(field.name in fields and _has_field(fields[field.name], field) for field in written)


def _has_field(field: pa.Field, written: pa.Field) -> bool:
    metadata, old_metadata = field.metadata or {}, written.metadata or {}
    added = metadata.keys() - old_metadata.keys()
    is_same = {key: value for key, value in metadata.items() if key not in added} == old_metadata
    return is_same and all(map(_is_added_by_landing, added)) and _has_type(field.type, written.type)


def _is_added_by_landing(key: bytes) -> bool:
    """Return whether landing may add this metadata: other names and numbers, or formats of new nested fields."""
    return key.startswith((NAME_KEY_PREFIX, NUMBER_KEY_PREFIX, FORMAT_KEY + b"."))


def _has_type(data_type: pa.DataType, written: pa.DataType) -> bool:
    if pa.types.is_struct(data_type) and pa.types.is_struct(written):
        fields = {field.name: field for field in data_type}
        return all(field.name in fields and _has_field(fields[field.name], field) for field in written)
    if pa.types.is_list(data_type) and pa.types.is_list(written):
        return _has_type(data_type.value_type, written.value_type)
    if pa.types.is_map(data_type) and pa.types.is_map(written):
        return _has_type(data_type.item_type, written.item_type)
    return bool(data_type == written)
