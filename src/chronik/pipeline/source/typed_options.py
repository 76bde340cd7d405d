"""Options for typed keys and values, and the resolution of the schemas that they name.

keyFormat, valueFormat        avro, protobuf or json-schema
keySchema, valueSchema        the schema of the column: its text, or its id in the registry (default: the latest
version of the subject)
keySubject, valueSubject      the subject (default: <topic>-key and <topic>-value)
keyWriterSchema, valueWriterSchema   the schema of records that do not name theirs, as text
mode                          PERMISSIVE (default) or FAILFAST, see `typed_columns`
schema.registry.url           URL of the schema registry (default: that of the brokers), and its settings:
schema.registry.basic.auth.user.info, .bearer.auth.token, .ssl.…
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import ClusterClient
from chronik.errors import ConfigError
from chronik.formats.codec import UnsupportedSchemaError, ValueFormat, WriterSchema, create_decoder
from chronik.formats.encoding import create_encoder
from chronik.formats.registry_client import (
    REGISTRY_SETTINGS,
    RegistrySettings,
    SchemaUnknownError,
    get_registry_client,
    parse_registry_settings,
)
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.errors import OptionError
from chronik.pipeline.registry_access import find_registry
from chronik.pipeline.source.option_names import REGISTRY_OPTIONS
from chronik.pipeline.source.raw_options import RawOptions

REGISTRY_PREFIX: Final = "schema.registry."
KEY, VALUE = "key", "value"

ERROR_SUFFIX, RESCUED_SUFFIX = "Error", "Rescued"
"""Suffixes of the columns with the errors and the rescued parts of a typed column."""


class TypedOptions(NamedTuple):
    """The options of a typed column."""

    name: str
    """Name of the column: key or value."""
    format: ValueFormat
    schema: str | None = None
    """The text or the id of a schema."""
    subject: str | None = None
    writer_schema: str | None = None
    message: str | None = None


class ModeOptions(NamedTuple):
    """The options of all typed columns of a query."""

    columns: tuple[TypedOptions, ...] = ()
    fails_fast: bool = False

    @property
    def report_columns(self) -> tuple[str, ...]:
        """Names of the columns that report what cannot be decoded."""
        if self.fails_fast:
            return ()
        return tuple(each.name + suffix for each in self.columns for suffix in (ERROR_SUFFIX, RESCUED_SUFFIX))


@dataclass(frozen=True)
class TypedColumn:
    """A column of keys or values that are decoded, with everything that tasks need for it."""

    name: str
    format: ValueFormat
    schema: WriterSchema
    """The schema that determines the type of the column."""
    writer_schema: WriterSchema | None = None
    """The schema of records that do not name theirs."""
    registry: RegistrySettings | None = None
    message_indexes: tuple[int, ...] = ()
    """The path to the message type in a Protobuf schema."""

    @property
    def arrow_field(self) -> pa.Field:
        """The column's field, with the metadata by which fields of other schemas are matched."""
        return create_decoder(self.schema, self.message_indexes).arrow_field


@dataclass(frozen=True)
class TypedColumns:
    """The typed columns of a query."""

    columns: tuple[TypedColumn, ...]
    fails_fast: bool = False
    """Whether a record that cannot be decoded completely fails the query."""


def parse_mode_options(given: RawOptions) -> ModeOptions:
    """Parse the options of the typed columns.

    Raises:
        OptionError: An option is invalid, or has no effect.
    """
    columns = []
    for name in (KEY, VALUE):
        format_ = parse_value_format(given, f"{name}Format")
        options = {each: given.get_str(name + each) for each in ("Schema", "Subject", "WriterSchema", "Message")}
        if format_ is None:
            for each in (each for each, value in options.items() if value is not None):
                raise OptionError(f"{name}{each} has no effect without {name}Format: set it, or remove {name}{each}")
            continue
        column = TypedOptions(name, format_, *options.values())
        _check_message_option(column)
        columns.append(column)
    mode = given.get_choice("permissive", ("permissive", "failfast"), "mode")
    if not columns:
        for each in ("mode", *REGISTRY_OPTIONS):
            if given.get_str(each) is not None:
                raise OptionError(f"{each} has no effect without valueFormat or keyFormat: set one, or remove {each}")
    return ModeOptions(tuple(columns), mode == "failfast")


def _check_message_option(column: TypedOptions) -> None:
    """Check the name of a message type.

    Raises:
        OptionError: The format has no message types, or records without schema ids are of the first one.
    """
    if column.message is None:
        return
    if column.format is not ValueFormat.PROTOBUF:
        raise OptionError(f"{column.name}Message is for Protobuf only")
    if column.writer_schema is not None:
        raise OptionError(
            f"{column.name}Message has no effect with {column.name}WriterSchema: put the message type first"
        )


def parse_value_format(given: RawOptions, name: str) -> ValueFormat | None:
    """Parse the option `keyFormat` or `valueFormat`.

    Raises:
        OptionError: The format is unknown.
    """
    text = given.get_str(name)
    if text is None:
        return None
    try:
        return ValueFormat(text.strip().lower().replace("_", "-"))
    except ValueError:
        raise OptionError(f"{name} = {text!r}: expected {', '.join(ValueFormat)}") from None


class RegistryResolver:
    """The registry of a query: the one that the options name, or else that of the brokers.

    The brokers are asked for its URL when it is first needed. Settings besides the URL apply to both.
    """

    def __init__(self, given: RawOptions, bootstrap: Callable[[], Bootstrap]) -> None:
        """Parse the options.

        Raises:
            OptionError: A setting is invalid.
        """
        values = {name: given.get_str(REGISTRY_PREFIX + name) for name in REGISTRY_SETTINGS}
        self._settings = {name: value for name, value in values.items() if value is not None}
        url = given.get_str(REGISTRY_PREFIX + "url")
        self._given = None if url is None else self._parse(url)
        self._bootstrap = bootstrap
        self._found: RegistrySettings | None = None

    def _parse(self, url: str) -> RegistrySettings:
        try:
            return parse_registry_settings(url, self._settings)
        except ConfigError as error:
            raise OptionError(f"{REGISTRY_PREFIX}url: {error}") from None

    def resolve(self) -> RegistrySettings:
        """Return the registry.

        Raises:
            OptionError: There is none, or a setting is invalid.
            ClientError, KafkaError: No broker can be reached, or the client may not describe their configs.
        """
        if self._found is None:
            self._found = self._given or self._discover()
        return self._found

    def _discover(self) -> RegistrySettings:
        with ClusterClient(self._bootstrap(), client_id=CLIENT_ID) as cluster:
            discovered = find_registry(None, cluster)
        if discovered is None:
            raise OptionError(f"the brokers report no schema registry: set {REGISTRY_PREFIX}url")
        return self._parse(discovered.url).with_defaults_of(discovered)


def resolve_typed_columns(options: ModeOptions, registry: RegistryResolver, topics: Sequence[str]) -> TypedColumns:
    """Fetch the schemas of the typed columns.

    `topics` are the topics of the query, if the options name them.

    Raises:
        OptionError: A schema does not exist, or is not supported.
        ChronikError: The registry or the brokers cannot be reached.
    """
    return TypedColumns(
        tuple(_resolve_column(column, registry, topics) for column in options.columns), options.fails_fast
    )


def _resolve_column(options: TypedOptions, registry: RegistryResolver, topics: Sequence[str]) -> TypedColumn:
    writer = None if options.writer_schema is None else WriterSchema(options.format, options.writer_schema)
    if options.schema is not None and not is_schema_id(options.schema):
        schema = WriterSchema(options.format, options.schema)
    elif options.schema is None and writer is not None:
        schema = writer
    else:
        schema = _fetch_schema(options, registry.resolve(), topics)
    used_registry = registry.resolve() if writer is None else None
    try:
        indexes: tuple[int, ...] = ()
        if options.format is ValueFormat.PROTOBUF:
            indexes = create_encoder(schema, options.message or ()).message_indexes
        column = TypedColumn(options.name, options.format, schema, writer, used_registry, indexes)
        _ = column.arrow_field
    except UnsupportedSchemaError as error:
        raise OptionError(f"{options.name}Schema: {error}") from None
    return column


def is_schema_id(text: str) -> bool:
    """Return whether the value of an option with a schema is an id."""
    return text.strip().isdecimal()


def _fetch_schema(options: TypedOptions, registry: RegistrySettings, topics: Sequence[str]) -> WriterSchema:
    client = get_registry_client(registry)
    try:
        if options.schema is not None:
            name, schema = f"{options.name}Schema = {options.schema}", client.fetch_schema(int(options.schema))
        else:
            subject = options.subject or choose_subject(options.name, topics)
            name, schema = f"subject {subject!r}", client.fetch_latest(subject).schema
    except (SchemaUnknownError, UnsupportedSchemaError) as error:
        raise OptionError(f"the schema of the column `{options.name}` cannot be used: {error}") from None
    check_schema_format(options.name, name, schema, options.format)
    return schema


def check_schema_format(column: str, name: str, schema: WriterSchema, expected: ValueFormat) -> None:
    """Check the format of a schema; `name` describes the schema.

    Raises:
        OptionError: The schema has another format than the column.
    """
    if schema.format is not expected:
        raise OptionError(f"{name} has the format {schema.format}: set {column}Format to {schema.format}")


def choose_subject(column: str, topics: Sequence[str]) -> str:
    """Return the subject of the keys or values of a topic.

    Raises:
        OptionError: There is not exactly one topic.
    """
    if len(topics) != 1:
        raise OptionError(
            f"the schema of the column `{column}` is unknown, because the options do not name exactly one topic: set"
            f" {column}Subject or {column}Schema"
        )
    return f"{topics[0]}-{column}"
