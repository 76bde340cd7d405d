"""Changes of a table's columns by other tools, which engines that read columns by field id support.

Chronik's readers find the columns of data files by their names. Columns that another tool has added, moved or promoted
to a wider type do not affect them. A renamed column would read as null in older files. A dropped column, if landing
added it again, would show its old values in Chronik, but not in engines that read by field id. A table property
therefore has the field ids of all columns since Chronik's last change of the schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table

from chronik.pipeline.tables.iceberg.schemas import is_supported, to_column_name
from chronik.pipeline.tables.topic_table import TableMismatchError

FIELD_IDS_PROPERTY: Final = "chronik.field-ids"
"""Table property with the field ids of all columns and nested fields, as a JSON object by path."""


def encode_field_ids(schema: Schema) -> dict[str, str]:
    """Return the table property for a schema that Chronik has set."""
    return {FIELD_IDS_PROPERTY: json.dumps(_list_field_ids(schema), separators=(",", ":"))}


def check_names(uri: str, table: Table) -> None:
    """Check that all columns have the names under which data files have their values.

    Raises:
        TableMismatchError: Another tool has renamed a column or a nested field.
    """
    names = {number: path for path, number in _list_field_ids(table.metadata.schema()).items()}
    for path, number in _read_field_ids(table).items():
        found = names.get(number, path)
        if found != path:
            raise TableMismatchError(
                f"{uri}: another tool has renamed column {path!r} to {found!r}: rename it back with that tool"
            )


def check_writable(uri: str, table: Table, rebuild_command: str) -> None:
    """Check that rows can be added to a table whose columns another tool may have changed.

    Raises:
        TableMismatchError: A column was renamed or dropped, or has a type or a requirement that landing cannot meet.
    """
    check_names(uri, table)
    schema, known = table.metadata.schema(), _read_field_ids(table)
    ids = set(_list_field_ids(schema).values())
    for path, number in known.items():
        if number not in ids:
            raise TableMismatchError(
                f"{uri}: another tool has dropped column {path!r}: rewrite the rows with '{rebuild_command}'"
                " (--schema SCHEMA without the column keeps it dropped)"
            )
    for field in schema.fields:
        if field.required or not is_supported(field.field_type):
            problem = "is required" if field.required else f"has type {field.field_type}"
            raise TableMismatchError(
                f"{uri}: column {field.name!r} of another tool {problem}, which landing does not support:"
                " drop or change it with that tool"
            )


def _read_field_ids(table: Table) -> dict[str, int]:
    """Return the field ids by path since Chronik's last change; parents come before their nested fields."""
    text = table.properties.get(FIELD_IDS_PROPERTY)
    # The catalog chooses the ids of a new table, so the property does not exist before the first change.
    known: Mapping[str, int] = _list_field_ids(table.metadata.schemas[0]) if text is None else json.loads(text)
    return dict(sorted(known.items(), key=lambda entry: entry[0].count(".")))


def _list_field_ids(schema: Schema) -> dict[str, int]:
    paths = {number: str(schema.find_column_name(number)) for number in index_by_id(schema)}
    return {to_column_name(path, schema): number for number, path in paths.items()}
