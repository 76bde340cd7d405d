"""A typed table without a broker: values are decoded and committed as landing does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from chronik.formats.codec import WriterSchema
from chronik.formats.encoding import build_prefix
from chronik.formats.framing import SchemaKey
from chronik.pipeline.records.columns import HEADERS_TYPE, RecordColumns
from chronik.pipeline.tables.catalog import open_or_create_table
from chronik.pipeline.tables.commit_plan import PartitionRange, TaskOutput
from chronik.pipeline.tables.layout import TableKind, build_table_batch
from chronik.pipeline.tables.table_files import TableDescriptor, scan
from chronik.pipeline.tables.topic_table import TableSpec
from chronik.pipeline.tables.values.arrow_json import convert_to_json_forms
from chronik.pipeline.tables.values.data_format import DataFormat, RecordFormat
from chronik.pipeline.tables.values.exact_json import decode_exact_json
from chronik.pipeline.tables.values.row_decoder import DecodedRows, collect_statistics
from chronik.pipeline.tables.values.table_schema import Column, TableSchema
from chronik.pipeline.tables.values.typed_decoder import encode_form

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class RegistryInMemory:
    """The schemas of a test by id, in place of a registry's client."""

    def __init__(self) -> None:
        self.schemas: list[WriterSchema] = []

    def add(self, schema: WriterSchema) -> int:
        if schema not in self.schemas:
            self.schemas.append(schema)
        return self.schemas.index(schema) + 1

    def prefetch_schemas(self, keys: Iterable[SchemaKey]) -> None:
        """Do nothing: all schemas are in memory."""

    def fetch_schema(self, key: SchemaKey) -> WriterSchema:
        assert isinstance(key, int)
        return self.schemas[key - 1]


def build_records(
    values: Sequence[bytes | None], first_offset: int = 0, *, keys: Sequence[bytes | None] | None = None
) -> RecordColumns:
    """Return records with these values, without headers."""
    count = len(values)
    return RecordColumns(
        offset=pa.array(first_offset + np.arange(count)),
        timestamp_ms=pa.array([1_700_000_000_000] * count, pa.int64()),
        timestamp_type=pa.nulls(count, pa.int32()),
        key=pa.array([None] * count if keys is None else keys, pa.binary()),
        value=pa.array(values, pa.binary()),
        headers=pa.nulls(count, HEADERS_TYPE),
    )


class TypedTable:
    """A table to which values are landed batch by batch."""

    def __init__(
        self, directory: Path, format: DataFormat, registry: RegistryInMemory, schema: TableSchema | None = None
    ) -> None:
        spec = TableSpec("orders", TOPIC_ID, TableKind.DECODED, format=RecordFormat(format))
        self.table = open_or_create_table(str(directory / "orders"), spec, schema=schema)
        self.table.set_registry_url("http://127.0.0.1:1")
        self.registry = registry
        self.offset = 0
        self.errors: list[str] = []

    def frame(self, schema: WriterSchema, payload: bytes) -> bytes:
        indexes = (0,) if schema.format.value == "protobuf" else ()
        return build_prefix(self.registry.add(schema), indexes) + payload

    @property
    def descriptor(self) -> TableDescriptor:
        return self.table.descriptor()

    def decode(self, values: Sequence[bytes | None]) -> list[DecodedRows]:
        return list(self.descriptor.row_decoder().decode_records(0, build_records(values, self.offset)))

    def land(self, *values: bytes | None) -> None:
        """Decode values, add the columns that they need, and commit the rows."""
        for each in self.decode(values):
            if each.unknown_fields:
                self.table.add_columns(collect_statistics(each.unknown_fields))
        end = self.offset + len(values)
        descriptor = self.descriptor
        with descriptor.writer() as writer:
            for each in self.decode(values):
                writer.write(build_table_batch(each.rows, descriptor.schema))
                if each.dead_letters is not None:
                    self.errors += each.dead_letters["_error"].to_pylist()
        self.table.commit([TaskOutput((PartitionRange(0, self.offset, end),), writer.files)])
        self.offset = end

    def rows(self) -> list[dict[str, Any]]:
        """Return the JSON forms of the columns and fields that are not null, and `_rescued`, by offset."""
        files = self.table.files()
        rows = pa.Table.from_batches(list(scan(files)), files.schema).sort_by("_offset")
        found: list[dict[str, Any]] = [{} for _ in range(rows.num_rows)]
        for column in files.value_schema.resolve_columns(files.schema):
            field = column.to_field()
            forms = convert_to_json_forms(rows[column.name].combine_chunks(), field)
            for row, form in zip(found, forms, strict=True):
                if form is not None:
                    row[column.name] = drop_nulls(decode_exact_json(encode_form(form)))
        for row, text in zip(found, rows["_rescued"].to_pylist(), strict=True):
            if text is not None:
                row["_rescued"] = decode_exact_json(text.encode())
        return found

    @property
    def columns(self) -> dict[str, Column]:
        descriptor = self.descriptor
        columns = descriptor.value_schema.resolve_columns(descriptor.schema)
        return {column.name: column for column in columns}


def drop_nulls(form: Any) -> Any:
    """Return a JSON form without the fields of objects that are null."""
    if isinstance(form, dict):
        return {key: drop_nulls(value) for key, value in form.items() if value is not None}
    return [drop_nulls(each) for each in form] if isinstance(form, list) else form
