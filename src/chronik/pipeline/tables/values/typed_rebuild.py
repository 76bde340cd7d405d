"""Encoding of the rows of a typed table as values again, with the schemas of their writers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec
import pyarrow as pa

from chronik.errors import ChronikError, ConfigError
from chronik.formats.codec import JsonForm, ValueFormat, WriterSchema, create_decoder
from chronik.formats.encoding import ValueEncoder, build_prefix, create_encoder, decode_json
from chronik.formats.framing import GUID_MAGIC, VALUE_HEADER, SchemaKey, encode_message_indexes
from chronik.formats.registry_client import RegistrySettings, get_registry_client
from chronik.pipeline.tables.values.column_projection import compile_restoring
from chronik.pipeline.tables.values.data_format import RecordFormat
from chronik.pipeline.tables.values.field_matching import build_object_tree
from chronik.pipeline.tables.values.framed_decoder import FIRST_MESSAGE, PLAIN_SCHEMA
from chronik.pipeline.tables.values.table_schema import TableSchema

_encode: Final = msgspec.json.Encoder().encode

Headers = Sequence[dict[str, Any]] | None


class UnknownWriterError(ChronikError):
    """A row that does not say with which schema its value was written."""


class TypedEncoder:
    """An encoder of the restored JSON objects of a typed table. Not thread-safe."""

    def __init__(
        self, format: RecordFormat, registry: RegistrySettings | None, schema: TableSchema, table: pa.Schema
    ) -> None:
        self._format = format
        self._registry = registry
        self._columns = schema.resolve_columns(table)
        self._tree = build_object_tree(self._columns)
        self._encoders: dict[str, _SchemaEncoder] = {}

    def encode(self, form: JsonForm, schema: str | None, headers: Headers) -> bytes:
        """Encode the JSON object of a row; `schema` is the name of the schema that the row has.

        Raises:
            UnencodableValueError: The row does not contain a complete value of the schema.
            UnknownWriterError, ConfigError: The row names no schema, or there is no registry.
            RegistryUnavailableError, RegistryRequestError, UnsupportedSchemaError: The schema cannot be used.
        """
        if schema is None:
            raise UnknownWriterError("the row does not name the schema of its value")
        encoder = self._encoders.get(schema)
        if encoder is None:
            encoder = self._encoders[schema] = self._create_encoder(schema)
        return encoder.encode(form, headers)

    def _create_encoder(self, name: str) -> _SchemaEncoder:
        key, indexes = parse_schema_name(name, self._format.value.value_format)
        schema = self._format.value_schema if key is None else self._fetch_schema(key)
        assert schema is not None, "a table without schema ids has a schema"
        written = create_decoder(schema, indexes).arrow_field
        restore = compile_restoring(written, self._columns, self._tree, fills_nulls=schema.format is ValueFormat.AVRO)
        return _SchemaEncoder(create_encoder(schema, indexes), restore, _build_frame(key, indexes))

    def _fetch_schema(self, key: SchemaKey) -> WriterSchema:
        if self._registry is None:
            raise ConfigError("the rows name schemas, but there is no schema registry: set its URL with --registry")
        return get_registry_client(self._registry).fetch_schema(key)


class _SchemaEncoder:
    """An encoder of values with one schema."""

    def __init__(self, encoder: ValueEncoder, restore: Any, frame: bytes) -> None:
        self._encoder = encoder
        self._restore = restore
        self._frame = frame

    def encode(self, form: JsonForm, headers: Headers) -> bytes:
        payload = self._encoder.encode_value(self._restore(decode_json(_encode(form))))
        is_in_header = any(each["key"] == VALUE_HEADER for each in headers or ())
        return payload if is_in_header else self._frame + payload


def parse_schema_name(name: str, format: ValueFormat | None) -> tuple[SchemaKey | None, tuple[int, ...]]:
    """Parse the name of a schema and message type, as `format_schema_name` returned it."""
    text, _, path = name.partition("/")
    key: SchemaKey | None = None
    if text != PLAIN_SCHEMA:
        key = int(text) if text.isdecimal() else UUID(text)
    if path:
        return key, tuple(map(int, path.split(".")))
    return key, FIRST_MESSAGE if format is ValueFormat.PROTOBUF else ()


def _build_frame(key: SchemaKey | None, indexes: tuple[int, ...]) -> bytes:
    """Return the bytes in front of the payloads."""
    if key is None:
        return b""
    if isinstance(key, int):
        return build_prefix(key, indexes)
    return bytes([GUID_MAGIC]) + key.bytes + (encode_message_indexes(indexes) if indexes else b"")
