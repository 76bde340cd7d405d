"""Encoding of keys and values of the sink in the wire format of schema registries.

    keyFormat, valueFormat        avro, protobuf or json-schema: the column, of any type, is encoded with a schema
    keySchema, valueSchema        the schema: its text, or its id in the registry (default: the latest version of the
                                  subject; if there is none and autoRegisterSchemas is true, for Avro the schema that
                                  corresponds to the type of the column)
    keySubject, valueSubject      the subject (default: the one that the strategy chooses)
    keySubjectNameStrategy, valueSubjectNameStrategy   topic (default): <topic>-key and <topic>-value; record: the name
                                  of the record; topic-record: <topic>-<name of the record>
    keyMessage, valueMessage      name of the Protobuf message type (default: the first one)
    autoRegisterSchemas           true: register a schema that the subject does not have (default: false)
    schemaIdLocation              prefix (default): in front of each key and value; header: in the headers
                                  __key_schema_id and __value_schema_id; none: records do not name their schema, which
                                  is given as text
    schema.registry.…             as for reading, see `chronik.pipeline.source.typed_options`

A row that is null is written as null, which is a tombstone in a compacted topic. Every other row must match the schema
exactly: no value is rounded or truncated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

import pyarrow as pa

from chronik.formats.codec import UnsupportedSchemaError, ValueFormat, WriterSchema
from chronik.formats.encoding import UnencodableValueError, ValueEncoder, build_prefix, create_encoder
from chronik.formats.framing import KEY_HEADER, VALUE_HEADER
from chronik.formats.record_names import extract_record_names
from chronik.formats.registry_client import RegistryClient, SchemaUnknownError, get_registry_client
from chronik.pipeline.errors import OptionError, SchemaError
from chronik.pipeline.records.columns import HEADERS_TYPE
from chronik.pipeline.source.raw_options import RawOptions
from chronik.pipeline.source.typed_options import (
    KEY,
    VALUE,
    RegistryResolver,
    check_schema_format,
    is_schema_id,
    parse_value_format,
)


class NameStrategy(StrEnum):
    """The way in which the subject of a key or value is chosen."""

    TOPIC = "topic"
    RECORD = "record"
    TOPIC_RECORD = "topic-record"


_STRATEGY_CLASSES: Final = {
    "topicnamestrategy": NameStrategy.TOPIC,
    "recordnamestrategy": NameStrategy.RECORD,
    "topicrecordnamestrategy": NameStrategy.TOPIC_RECORD,
}
"""Names of the classes of Confluent's clients, in lower case and without their package."""


class SchemaIdLocation(StrEnum):
    """The part of a record that contains the ids of its schemas."""

    PREFIX = "prefix"
    HEADER = "header"
    NONE = "none"


class ColumnOptions(NamedTuple):
    """The options of a typed column."""

    name: str
    format: ValueFormat
    schema: str | None
    subject: str | None
    strategy: NameStrategy
    message: str | None


class TypedSinkOptions(NamedTuple):
    """The options of the typed columns."""

    columns: tuple[ColumnOptions, ...]
    registers_schemas: bool = False
    location: SchemaIdLocation = SchemaIdLocation.PREFIX


@dataclass(frozen=True)
class ColumnEncoding:
    """The encoding of a column, with everything that tasks need for it."""

    name: str
    schema: WriterSchema
    message: str | None
    id: int | None
    """The id of the schema; None if records do not name it."""
    has_header: bool = False
    """Whether the id is in a header."""


def parse_typed_sink_options(given: RawOptions) -> TypedSinkOptions:
    """Parse the options of the typed columns.

    Raises:
        OptionError: An option is invalid, or has no effect.
    """
    columns = tuple(each for each in (_parse_column(given, name) for name in (KEY, VALUE)) if each is not None)
    location = given.get_choice("prefix", tuple(SchemaIdLocation), "schemaIdLocation")
    options = TypedSinkOptions(columns, given.get_bool("autoRegisterSchemas", False), SchemaIdLocation(location))
    if not columns:
        for name in given.names():
            if name in ("schemaidlocation", "autoregisterschemas") or name.startswith("schema.registry."):
                raise OptionError(f"{name} has no effect without valueFormat or keyFormat: set one, or remove {name}")
    return options


def _parse_column(given: RawOptions, name: str) -> ColumnOptions | None:
    format_ = parse_value_format(given, f"{name}Format")
    names = ("Schema", "Subject", "SubjectNameStrategy", "Message")
    schema, subject, strategy, message = (given.get_str(name + each) for each in names)
    if format_ is None:
        for each, value in zip(names, (schema, subject, strategy, message), strict=True):
            if value is not None:
                raise OptionError(f"{name}{each} has no effect without {name}Format: set it, or remove {name}{each}")
        return None
    if message is not None and format_ is not ValueFormat.PROTOBUF:
        raise OptionError(f"{name}Message is for Protobuf only")
    return ColumnOptions(name, format_, schema, subject, _parse_strategy(name, strategy), message)


def _parse_strategy(name: str, text: str | None) -> NameStrategy:
    if text is None:
        return NameStrategy.TOPIC
    lowered = text.strip().lower().rpartition(".")[2]
    try:
        return _STRATEGY_CLASSES.get(lowered) or NameStrategy(lowered)
    except ValueError:
        raise OptionError(f"{name}SubjectNameStrategy = {text!r}: expected {', '.join(NameStrategy)}") from None


# Schemas


def resolve_encodings(
    options: TypedSinkOptions, registry: RegistryResolver, topic: str | None, types: Mapping[str, pa.DataType]
) -> tuple[ColumnEncoding, ...]:
    """Fetch or register the schemas of the typed columns, of which `types` are the Arrow types.

    Raises:
        OptionError: A schema is invalid, or the subject does not have it.
        ChronikError: The registry or the brokers cannot be reached, or the registry rejects a schema.
    """
    return tuple(
        _SchemaResolver(column, options, registry, topic).resolve(types[column.name])
        for column in options.columns
        if column.name in types
    )


class _SchemaResolver:
    """The resolution of the schema of one column."""

    def __init__(
        self, column: ColumnOptions, options: TypedSinkOptions, registry: RegistryResolver, topic: str | None
    ) -> None:
        self._column = column
        self._options = options
        self._registry = registry
        self._topic = topic

    def resolve(self, data_type: pa.DataType) -> ColumnEncoding:
        schema, id = self._find_schema(data_type)
        self._check_schema(schema)
        has_header = self._options.location is SchemaIdLocation.HEADER
        return ColumnEncoding(self._column.name, schema, self._column.message, id, has_header)

    def _find_schema(self, data_type: pa.DataType) -> tuple[WriterSchema, int | None]:
        given = self._column.schema
        if self._options.location is SchemaIdLocation.NONE:
            if given is None or is_schema_id(given):
                raise OptionError(f"schemaIdLocation = none: set {self._column.name}Schema to the text of the schema")
            return WriterSchema(self._column.format, given), None
        client = get_registry_client(self._registry.resolve())
        if given is None:
            return self._find_latest(client, data_type)
        if not is_schema_id(given):
            schema = WriterSchema(self._column.format, given)
            self._check_schema(schema)
            return schema, self._find_id(client, schema)
        try:
            schema = client.fetch_schema(int(given))
        except (SchemaUnknownError, UnsupportedSchemaError) as error:
            raise OptionError(f"{self._column.name}Schema = {given}: {error}") from None
        check_schema_format(self._column.name, f"{self._column.name}Schema = {given}", schema, self._column.format)
        return schema, int(given)

    def _check_schema(self, schema: WriterSchema) -> None:
        try:
            create_encoder(schema, self._column.message or ())
        except UnsupportedSchemaError as error:
            raise OptionError(f"{self._column.name}Schema: {error}") from None

    def _find_latest(self, client: RegistryClient, data_type: pa.DataType) -> tuple[WriterSchema, int]:
        subject = self._choose_subject(None)
        try:
            found = client.fetch_latest(subject)
        except UnsupportedSchemaError as error:
            raise OptionError(f"subject {subject!r}: {error}") from None
        except SchemaUnknownError as error:
            if self._column.format is not ValueFormat.AVRO or not self._options.registers_schemas:
                raise OptionError(f"{error}; set {self._column.name}Schema and autoRegisterSchemas = true") from None
            schema = self._derive_schema(data_type)
            return schema, self._find_id(client, schema)
        check_schema_format(self._column.name, f"subject {subject!r}", found.schema, self._column.format)
        return found.schema, found.id

    def _derive_schema(self, data_type: pa.DataType) -> WriterSchema:
        from chronik.formats.avro.derivation import derive_avro_schema

        name = f"{self._topic or ''}_{self._column.name}"
        try:
            return WriterSchema(ValueFormat.AVRO, derive_avro_schema(data_type, name))
        except UnsupportedSchemaError as error:
            raise OptionError(f"column `{self._column.name}`: {error}; set {self._column.name}Schema") from None

    def _find_id(self, client: RegistryClient, schema: WriterSchema) -> int:
        subject = self._choose_subject(schema)
        if self._options.registers_schemas:
            return client.register(subject, schema)
        try:
            return client.find_id(subject, schema)
        except SchemaUnknownError as error:
            raise OptionError(f"{error}; set autoRegisterSchemas = true to register the schema") from None

    def _choose_subject(self, schema: WriterSchema | None) -> str:
        column = self._column
        if column.subject is not None:
            return column.subject
        if column.strategy is not NameStrategy.RECORD and self._topic is None:
            raise OptionError(
                f"the subject of the column `{column.name}` is unknown, because rows name their topic: set"
                f" {column.name}Subject, or the option topic"
            )
        if column.strategy is NameStrategy.TOPIC:
            return f"{self._topic}-{column.name}"
        if schema is None:
            raise OptionError(f"{column.name}SubjectNameStrategy = {column.strategy}: set {column.name}Schema")
        names = {column.message} if column.message else extract_record_names(schema.format, schema.text)
        if len(names) != 1:
            raise OptionError(
                f"{column.name}SubjectNameStrategy = {column.strategy}: the schema does not name exactly one record"
            )
        (name,) = names
        return name if column.strategy is NameStrategy.RECORD else f"{self._topic}-{name}"


# Rows


class RowEncoder:
    """An encoder of the typed columns of rows. Not thread-safe."""

    def __init__(self, encodings: Iterable[ColumnEncoding]) -> None:
        self._columns: list[tuple[ColumnEncoding, ValueEncoder, bytes]] = []
        for each in encodings:
            encoder = create_encoder(each.schema, each.message or ())
            prefix = b"" if each.id is None else build_prefix(each.id, encoder.message_indexes)
            self._columns.append((each, encoder, prefix))

    def encode(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows with encoded columns.

        Raises:
            SchemaError: A row does not match the schema; the message starts with its index.
        """
        for rows in batches:
            yield self._encode_rows(rows) if self._columns else rows

    def _encode_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        arrays = dict(zip(rows.schema.names, rows.columns, strict=True))
        for encoding, encoder, prefix in self._columns:
            try:
                payloads = encoder.encode_column(arrays[encoding.name])
            except UnencodableValueError as error:
                raise SchemaError(f"column `{encoding.name}`: {error}") from None
            if encoding.has_header:
                header = KEY_HEADER if encoding.name == KEY else VALUE_HEADER
                arrays["headers"] = _add_headers(arrays.get("headers"), header, prefix, payloads)
            elif prefix:
                payloads = [None if each is None else prefix + each for each in payloads]
            arrays[encoding.name] = pa.array(payloads, pa.binary())
        return pa.RecordBatch.from_pydict(arrays)


def _add_headers(headers: pa.Array | None, name: str, value: bytes, payloads: list[bytes | None]) -> pa.ListArray:
    """Add a header to the records with a payload that is not null."""
    found: list[Any] = [None] * len(payloads) if headers is None else headers.to_pylist()
    added = [{"key": name, "value": value}]
    return pa.array(
        [each if payload is None else [*(each or ()), *added] for each, payload in zip(found, payloads, strict=True)],
        HEADERS_TYPE,
    )
