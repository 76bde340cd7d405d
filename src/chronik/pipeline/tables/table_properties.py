"""Table properties that identify a topic's table and describe its rows, which all table formats store."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from chronik.errors import ConfigError
from chronik.formats.registry_client import RegistrySettings
from chronik.pipeline.tables.layout import DECODING_RULES_VERSION, TYPED_DECODING_RULES_VERSION, TableKind
from chronik.pipeline.tables.partitioning import parse_partitioning
from chronik.pipeline.tables.topic_table import SchemaConflictError, TableFormat, TableMismatchError, TableSpec
from chronik.pipeline.tables.values.data_format import (
    DataFormat,
    RecordFormat,
    format_writer_schema,
    parse_writer_schema,
)
from chronik.pipeline.tables.values.schema_evolution import reads_same_values
from chronik.pipeline.tables.values.table_schema import (
    Column,
    TableSchema,
    build_schema_document,
    check_column_paths,
    format_path,
    is_declared,
    parse_schema_document,
    restore_column_from_field,
    without_declared_settings,
)

TOPIC, TOPIC_ID, KIND, PARTITIONING = "chronik.topic", "chronik.topic.id", "chronik.kind", "chronik.partitioning"
VALUE_FORMAT, KEY_FORMAT = "chronik.value.format", "chronik.key.format"
VALUE_WRITER_SCHEMA, KEY_WRITER_SCHEMA = "chronik.value.writer.schema", "chronik.key.writer.schema"
"""The schemas of values and keys that do not name theirs, as JSON."""
REGISTRY_URL = "chronik.registry.url"
"""The URL, without credentials, of the registry from which records were last decoded."""
SCHEMA_PROPERTY, SCHEMA_VERSION_PROPERTY = "chronik.schema", "chronik.schema.version"
"""The declared schema of the values as JSON, and its version. Earlier versions are in `chronik.schema.<version>`."""
DECODING_RULES_PROPERTY = "chronik.decoding.rules"
REBUILT_VERSION = "chronik.rebuilt.version"
"""Version of the table that the last rebuild replaced. It is in the metadata of the field `_rescued`, so that files
that were written before the rebuild do not match the table, even if all columns have kept their types. In Delta tables,
that metadata also has the schema of the rebuilt rows, because the commit that replaces the rows can change fields, but
no table properties."""


def build_spec_properties(spec: TableSpec) -> dict[str, str]:
    """Return the properties of a new table, from which `read_spec` restores its identity."""
    return {
        TOPIC: spec.topic,
        TOPIC_ID: spec.topic_id,
        KIND: spec.kind.value,
        PARTITIONING: spec.partitioning.value,
        DECODING_RULES_PROPERTY: str(get_decoding_rules(spec.format)),
        **_build_format_properties(spec.format),
    }


def read_spec(uri: str, properties: Mapping[str, str], table_format: TableFormat) -> TableSpec:
    """Return the identity of a table.

    Raises:
        TableMismatchError: It is not a topic's table.
    """
    if TOPIC_ID not in properties:
        raise TableMismatchError(f"{uri} is a table, but not of a topic")
    return TableSpec(
        properties[TOPIC],
        properties[TOPIC_ID],
        TableKind(properties[KIND]),
        parse_partitioning(properties[PARTITIONING]),
        read_record_format(properties),
        table_format,
    )


def read_decoding_rules(uri: str, properties: Mapping[str, str]) -> int:
    """Return the version of a table's decoding rules.

    Raises:
        TableMismatchError: Those of this driver are older.
    """
    rules, own = int(properties.get(DECODING_RULES_PROPERTY, 0)), get_decoding_rules(read_record_format(properties))
    if rules > own:
        raise TableMismatchError(
            f"{uri} has decoding rules {rules} of a newer version, this one supports {own}: upgrade"
        )
    return rules


def read_schema_versions(properties: Mapping[str, str]) -> dict[int, TableSchema]:
    """Return all versions of the declared schema."""
    prefix = f"{SCHEMA_PROPERTY}."
    return {
        int(name.removeprefix(prefix)): parse_schema_document(json.loads(text), is_stored=True)
        for name, text in properties.items()
        if name.startswith(prefix) and name.removeprefix(prefix).isdecimal()
    }


def get_decoding_rules(format: RecordFormat) -> int:
    """Return the version of this driver's decoding rules for a table."""
    has_new_rules = format.is_typed or format.has_decoded_keys
    return TYPED_DECODING_RULES_VERSION if has_new_rules else DECODING_RULES_VERSION


def _build_format_properties(format: RecordFormat) -> dict[str, str]:
    properties = {
        VALUE_FORMAT: None if format.value is DataFormat.JSON else format.value.value,
        KEY_FORMAT: None if format.key is DataFormat.RAW else format.key.value,
        VALUE_WRITER_SCHEMA: None if format.value_schema is None else format_writer_schema(format.value_schema),
        KEY_WRITER_SCHEMA: None if format.key_schema is None else format_writer_schema(format.key_schema),
    }
    return {name: value for name, value in properties.items() if value is not None}


def read_record_format(properties: Mapping[str, str]) -> RecordFormat:
    """Return the formats that a table's properties name. Tables of earlier versions have JSON values and raw keys."""
    value_schema, key_schema = properties.get(VALUE_WRITER_SCHEMA), properties.get(KEY_WRITER_SCHEMA)
    return RecordFormat(
        DataFormat(properties.get(VALUE_FORMAT, DataFormat.JSON)),
        DataFormat(properties.get(KEY_FORMAT, DataFormat.RAW)),
        None if value_schema is None else parse_writer_schema(value_schema),
        None if key_schema is None else parse_writer_schema(key_schema),
    )


def read_registry(properties: Mapping[str, str]) -> RegistrySettings | None:
    return RegistrySettings(properties[REGISTRY_URL]) if REGISTRY_URL in properties else None


def build_schema_properties(schema: TableSchema, version: int) -> dict[str, str]:
    text = json.dumps(build_schema_document(schema))
    properties = {
        SCHEMA_PROPERTY: text,
        SCHEMA_VERSION_PROPERTY: str(version),
        f"{SCHEMA_PROPERTY}.{version}": text,
    }
    return {**schema.properties, **properties}


def find_changed_fields(schema: TableSchema, table: pa.Schema) -> Iterator[pa.Field]:
    """Yield the fields of a table that a schema changes. Columns that it does not declare lose their settings."""
    declared = {column.name: column for column in schema.columns}
    for field in table:
        column = declared.get(field.name)
        if column is not None:
            known = restore_column_from_field(field)
            # Landing may have added nested fields, and names of fields of writers' schemas.
            column = replace(column, data_type=known.data_type, origin=known.origin)
            if known != column or not is_declared(field):
                yield column.to_field()
        elif is_declared(field):
            yield without_declared_settings(restore_column_from_field(field)).to_field(is_declared=False)


def find_missing_columns(uri: str, schema: TableSchema, table: pa.Schema) -> list[Column]:
    """Return the declared columns that the table does not have. Raises SchemaConflictError."""
    names = {column.name for column in schema.columns}
    others = [column for column in schema.resolve_columns(table) if column.name not in names]
    try:
        check_column_paths([*schema.columns, *others])
    except ConfigError as error:
        raise SchemaConflictError(f"{uri}: {error}: remove a column with 'chronik pipeline rebuild'") from None
    fields = {field.name.casefold(): field for field in table}
    missing = []
    for column in schema.columns:
        field = fields.get(column.name.casefold())
        if field is None:
            missing.append(column)
        elif field.name != column.name:
            raise SchemaConflictError(f"{uri}: column {column.name!r} differs from column {field.name!r} only in case")
        elif not reads_same_values(known := restore_column_from_field(field), column):
            raise SchemaConflictError(
                f"{uri}: column {column.name!r} {_describe_conflict(known, column)}: "
                "change it with 'chronik pipeline rebuild'"
            )
    return missing


def _describe_conflict(known: Column, declared: Column) -> str:
    if known.path != declared.path:
        return f"is read from {format_path(known.path)}, not from {format_path(declared.path)}"
    if known.type_name != declared.type_name:
        return f"has type {known.type_name}, not {declared.type_name}"
    if known.format != declared.format:
        return f"has format {known.format or 'default'}, not {declared.format or 'default'}"
    return f"has zone {known.zone or 'UTC'}, not {declared.zone or 'UTC'}"


def describe_table_spec(spec: TableSpec) -> str:
    values = f" {spec.format}" if spec.kind is TableKind.DECODED else ""
    return f"topic {spec.topic} ({spec.topic_id}), {spec.kind}{values}, partitioned by {spec.partitioning}"
