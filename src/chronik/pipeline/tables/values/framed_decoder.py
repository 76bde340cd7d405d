"""Decoding of keys or values that name the schemas of their writers, in bulk.

The result does not depend on the table. A record is an error if it names no schema, if the registry has confirmed that
the schema does not exist, or if its bytes do not match the schema. Any other problem, such as a registry that does not
respond, raises an exception, so that no record is discarded because of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.errors import ConfigError
from chronik.formats.codec import (
    DecodedColumn,
    UnsupportedSchemaError,
    ValueDecoder,
    ValueFormat,
    WriterSchema,
    create_decoder,
)
from chronik.formats.decoded_size import ColumnBudget
from chronik.formats.framing import FrameGroup, SchemaKey, split_frames, split_message_groups
from chronik.formats.registry_client import RegistrySettings, SchemaUnknownError, get_registry_client

FIRST_MESSAGE: Final = (0,)
"""Message indexes of the first message type of a Protobuf schema, to which most values belong."""

PLAIN_SCHEMA: Final = ""
"""Name of the schema of values that do not name theirs."""


class DecodedGroup(NamedTuple):
    """Decoded keys or values with the same schema."""

    rows: npt.NDArray[np.int64]
    """Indexes in the array that was decoded, in ascending order."""
    schema: str
    """The schema's id or GUID, with the message indexes of a Protobuf value unless it is of the first type: `7/1.0`."""
    written: pa.Field
    """The type of the values in the schema."""
    column: DecodedColumn


class FramedDecoder:
    """A decoder of keys or values. Not thread-safe."""

    def __init__(
        self,
        format: ValueFormat,
        schema: WriterSchema | None,
        registry: RegistrySettings | None,
        *,
        is_key: bool = False,
    ) -> None:
        """Create a decoder of values in `format`, with one schema or with those in a registry."""
        self._format = format
        self._schema = schema
        self._registry = registry
        self._is_key = is_key
        self._decoders: dict[tuple[SchemaKey | None, tuple[int, ...]], ValueDecoder | str] = {}
        """Decoder of each schema and message type, or the reason why there is none."""
        self._schemas: dict[SchemaKey, WriterSchema | str] = {}

    def decode(
        self, values: pa.BinaryArray, headers: pa.ListArray | None, errors: dict[int, str]
    ) -> Iterator[DecodedGroup]:
        """Decode the values that are not null, and yield them by schema. Reasons of errors are added to `errors`.

        Raises:
            RegistryUnavailableError, RegistryRequestError: A schema cannot be fetched.
            ConfigError: There is no registry, or a library is not installed.
            ColumnTooLargeError: See `ValueDecoder.decode_column`.
        """
        budget = ColumnBudget(len(values))
        for group in self._decode(values, headers, errors):
            budget.take(group.column.array.nbytes)
            yield group

    def _decode(
        self, values: pa.BinaryArray, headers: pa.ListArray | None, errors: dict[int, str]
    ) -> Iterator[DecodedGroup]:
        if self._schema is not None:
            rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
            payloads = values.drop_null() if values.null_count else values
            indexes = FIRST_MESSAGE if self._format is ValueFormat.PROTOBUF else ()
            yield from self._decode_payloads(None, indexes, rows, payloads, errors)
            return
        split = split_frames(values, headers, is_key=self._is_key)
        errors.update(split.errors)
        if self._registry is not None:
            new = [group.schema for group in split.groups if group.schema not in self._schemas]
            get_registry_client(self._registry).prefetch_schemas(new)
        for group in split.groups:
            yield from self._decode_group(group, errors)

    def _decode_group(self, group: FrameGroup, errors: dict[int, str]) -> Iterator[DecodedGroup]:
        if self._format is not ValueFormat.PROTOBUF:
            yield from self._decode_payloads(group.schema, (), group.rows, group.payloads, errors)
            return
        problem = self._find_schema_problem(group.schema)
        if problem is not None:
            errors.update(dict.fromkeys(group.rows.tolist(), problem))
            return
        messages, found = split_message_groups(group)
        errors.update(found)
        for each in messages:
            yield from self._decode_payloads(group.schema, each.indexes, each.rows, each.payloads, errors)

    def _decode_payloads(
        self,
        key: SchemaKey | None,
        indexes: tuple[int, ...],
        rows: npt.NDArray[np.int64],
        payloads: pa.BinaryArray,
        errors: dict[int, str],
    ) -> Iterator[DecodedGroup]:
        if not len(rows):
            return
        decoder = self._get_decoder(key, indexes)
        if isinstance(decoder, str):
            errors.update(dict.fromkeys(rows.tolist(), decoder))
            return
        column = decoder.decode_column(payloads)
        errors.update({int(rows[index]): message for index, message in column.errors.items()})
        yield DecodedGroup(rows, format_schema_name(key, indexes), decoder.arrow_field, column)

    def _find_schema_problem(self, key: SchemaKey) -> str | None:
        schema = self._get_schema(key)
        return schema if isinstance(schema, str) else None

    def _get_schema(self, key: SchemaKey) -> WriterSchema | str:
        """Return a schema, or the reason why values cannot have been written with it."""
        found = self._schemas.get(key)
        if found is not None:
            return found
        if self._registry is None:
            raise ConfigError("the values name schemas, but there is no schema registry: set one with --registry")
        try:
            schema: WriterSchema | str = get_registry_client(self._registry).fetch_schema(key)
        except (SchemaUnknownError, UnsupportedSchemaError) as error:
            return str(error)  # the client remembers unknown schemas for 30 seconds
        if isinstance(schema, WriterSchema) and schema.format is not self._format:
            schema = f"schema {key} has the format {schema.format}, but the table has the format {self._format}"
        self._schemas[key] = schema
        return schema

    def _get_decoder(self, key: SchemaKey | None, indexes: tuple[int, ...]) -> ValueDecoder | str:
        found = self._decoders.get((key, indexes))
        if found is not None:
            return found
        schema = self._schema if key is None else self._get_schema(key)
        assert schema is not None, "values have a schema or name one"
        if isinstance(schema, str):
            return schema
        decoder: ValueDecoder | str
        try:
            created = create_decoder(schema, indexes)
            _ = created.arrow_field  # the schema may describe too many columns
            decoder = created
        except UnsupportedSchemaError as error:
            decoder = f"schema {key}: {error}" if key is not None else str(error)
        self._decoders[key, indexes] = decoder
        return decoder


def format_schema_name(key: SchemaKey | None, indexes: tuple[int, ...]) -> str:
    """Return the name of a schema and message type, as tables store it."""
    name = PLAIN_SCHEMA if key is None else str(key)
    return name if indexes in ((), FIRST_MESSAGE) else f"{name}/{'.'.join(map(str, indexes))}"
