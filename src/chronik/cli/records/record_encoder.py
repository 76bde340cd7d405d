"""Encoding of the keys and values that `chronik produce` reads as JSON, with schemas of a registry."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Annotated, Final, NamedTuple
from uuid import UUID

from msgspec import Meta, Struct

from chronik.cli.arguments import InvalidInput, parse_positive_int
from chronik.errors import ChronikError
from chronik.formats.codec import UndecodableValueError, ValueFormat, WriterSchema
from chronik.formats.encoding import UnencodableValueError, ValueEncoder, build_prefix, create_encoder, decode_json
from chronik.formats.framing import (
    GUID_MAGIC,
    KEY_HEADER,
    VALUE_HEADER,
    SchemaKey,
    encode_message_indexes,
    find_schema_header,
    split_frame,
    split_message_indexes,
)
from chronik.formats.registry_client import RegistryClient
from chronik.protocol.records import RecordHeader

KEY, VALUE = "key", "value"
FORMATS: Final = tuple(each.value for each in ValueFormat)


def add_schema_arguments(parser: argparse.ArgumentParser) -> None:
    for field in (VALUE, KEY):
        parser.add_argument(
            f"--{field}-format",
            choices=FORMATS,
            help=f"encode {field}s, which must be JSON, with the latest schema of the subject TOPIC-{field}",
        )
        parser.add_argument(
            f"--{field}-schema-id",
            type=parse_positive_int,
            metavar="ID",
            help=f"encode {field}s, which must be JSON, with the schema that has this id",
        )


class NamedSchema(Struct, forbid_unknown_fields=True):
    """The schema of a key or value in a line of JSON."""

    id: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    guid: UUID | None = None
    format: ValueFormat | None = None
    message_indexes: list[Annotated[int, Meta(ge=0)]] = []
    """The path to the message type in a Protobuf schema."""


class _Encoding(NamedTuple):
    """An encoder and the bytes in front of its payloads."""

    encoder: ValueEncoder
    prefix: bytes


class FieldEncoder:
    """An encoder of the keys or of the values of a topic."""

    def __init__(self, arguments: argparse.Namespace, field: str, open_registry: Callable[[], RegistryClient]) -> None:
        self._field = field
        self._open_registry = open_registry
        self._subject = f"{arguments.topic}-{field}"
        self._format: str | None = getattr(arguments, f"{field}_format")
        self._schema_id: int | None = getattr(arguments, f"{field}_schema_id")
        self._default: _Encoding | None = None
        self._encodings: dict[tuple[SchemaKey, tuple[int, ...]], _Encoding] = {}

    @property
    def has_default(self) -> bool:
        """Whether the options select a schema."""
        return self._format is not None or self._schema_id is not None

    def load_default(self) -> None:
        """Fetch the schema that the options select, if any.

        Raises:
            ChronikError: The registry does not respond, or has no such schema.
        """
        if not self.has_default:
            return
        client = self._open_registry()
        if self._schema_id is not None:
            schema_id, schema = self._schema_id, client.fetch_schema(self._schema_id)
            name = f"schema {schema_id}"
        else:
            found = client.fetch_latest(self._subject)
            schema_id, schema = found.id, found.schema
            name = f"version {found.version} of subject {self._subject}"
        _check_format(name, schema, self._format)
        self._default = _create_encoding(schema_id, schema, ())

    def encode(
        self, text: bytes, named: NamedSchema | None = None, headers: tuple[RecordHeader, ...] = ()
    ) -> bytes | None:
        """Encode the JSON text of a key or value with the selected schema, or with the one named in its line.

        Return None if there is neither.

        Raises:
            InvalidInput: The text does not match the schema, or the schema does not exist.
        """
        header = find_schema_header(headers, is_key=self._field == KEY)
        try:
            if self._default is not None:
                if header is not None:
                    name = KEY_HEADER if self._field == KEY else VALUE_HEADER
                    raise InvalidInput(f"the record has the header {name}: omit --{self._field}-format")
                found = self._default
            elif named is not None and header is not None:
                frame = split_frame(b"", header)
                indexes = split_message_indexes(frame.indexes)[0] if frame.indexes else ()
                found = self._get_encoding(frame.schema, indexes, named)._replace(prefix=b"")
            elif named is not None:
                key = named.id if named.guid is None else named.guid
                if key is None:
                    raise InvalidInput(f"{self._field}_schema: expected an id or a guid")
                found = self._get_encoding(key, tuple(named.message_indexes), named)
            else:
                return None
            return found.prefix + found.encoder.encode_value(decode_json(text))
        except (UnencodableValueError, UndecodableValueError) as error:
            raise InvalidInput(f"{self._field}: {error}") from None

    def _get_encoding(self, key: SchemaKey, indexes: tuple[int, ...], named: NamedSchema) -> _Encoding:
        found = self._encodings.get((key, indexes))
        if found is None:
            try:
                schema = self._open_registry().fetch_schema(key)
                _check_format(f"schema {key}", schema, named.format)
                found = self._encodings[key, indexes] = _create_encoding(key, schema, indexes)
            except ChronikError as error:
                raise InvalidInput(f"{self._field}_schema: {error}") from None
        return found


def _check_format(name: str, schema: WriterSchema, expected: str | None) -> None:
    if expected is not None and schema.format != expected:
        raise InvalidInput(f"{name} has the format {schema.format}, not {expected}")


def _create_encoding(key: SchemaKey, schema: WriterSchema, indexes: Sequence[int]) -> _Encoding:
    encoder = create_encoder(schema, indexes)
    if isinstance(key, int):
        return _Encoding(encoder, build_prefix(key, encoder.message_indexes))
    path = encode_message_indexes(encoder.message_indexes) if encoder.message_indexes else b""
    return _Encoding(encoder, bytes([GUID_MAGIC]) + key.bytes + path)


class RecordEncoders:
    """The encoders of the keys and of the values of a topic. They share a client of the registry."""

    def __init__(
        self, arguments: argparse.Namespace, open_registry: Callable[[argparse.Namespace], RegistryClient]
    ) -> None:
        self._arguments = arguments
        self._open = open_registry
        self._client: RegistryClient | None = None
        self.key = FieldEncoder(arguments, KEY, self._open_registry)
        self.value = FieldEncoder(arguments, VALUE, self._open_registry)

    @property
    def has_default(self) -> bool:
        """Whether the options select a schema for keys or values."""
        return self.key.has_default or self.value.has_default

    def load_defaults(self) -> None:
        """Fetch the schemas that the options select. Raise a ChronikError if one does not exist."""
        self.key.load_default()
        self.value.load_default()

    def close(self) -> None:
        """Close the connection to the registry."""
        if self._client is not None:
            self._client.close()

    def _open_registry(self) -> RegistryClient:
        if self._client is None:
            self._client = self._open(self._arguments)
        return self._client
