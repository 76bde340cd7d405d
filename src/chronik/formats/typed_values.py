"""Reading of single typed values: the schema that a key or value names is fetched, and the payload is decoded with it.

Tools that show records use this. Tables and queries decode columns in bulk instead.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from msgspec.json import format

from chronik.formats.codec import (
    JsonForm,
    UndecodableValueError,
    ValueDecoder,
    ValueFormat,
    WriterSchema,
    create_decoder,
    encode_json,
)
from chronik.formats.framing import (
    FramedValue,
    SchemaKey,
    UnframedValueError,
    find_schema_header,
    split_frame,
    split_message_indexes,
)

CACHED_DECODERS_MAX: Final = 200

FetchSchema = Callable[[SchemaKey], WriterSchema]
"""A function that returns the schema with an id or GUID, or raises a ChronikError."""


class TypedValue(NamedTuple):
    """A decoded key or value."""

    form: JsonForm
    schema: SchemaKey
    format: ValueFormat
    message_indexes: tuple[int, ...] = ()
    """The path to the message type in a Protobuf schema."""
    text: bytes | None = None
    """The value as it was written, if that is JSON."""

    @property
    def json(self) -> bytes:
        """The value as JSON text without whitespace. JSON values keep their numbers, and lack the fields they lack."""
        return encode_json(self.form) if self.text is None else format(self.text, indent=-1)


class UndecodedValue(NamedTuple):
    """A key or value that names a schema but could not be decoded."""

    schema: SchemaKey
    reason: str


class TypedFields(NamedTuple):
    """The decoded key and value of a record. They are None if they are null, name no schema, or are not decoded."""

    key: TypedValue | UndecodedValue | None = None
    value: TypedValue | UndecodedValue | None = None


def find_frame(
    data: bytes | None, headers: Iterable[tuple[str, bytes | None]] = (), *, is_key: bool
) -> FramedValue | None:
    """Split a key or value; `headers` are those of its record. Return None if it is null or names no schema."""
    if data is None:
        return None
    try:
        return split_frame(data, find_schema_header(headers, is_key=is_key))
    except UnframedValueError:
        return None


class TypedValueReader:
    """A decoder of keys and values that name their schemas. Decoders are cached. Not thread-safe."""

    def __init__(self, fetch_schema: FetchSchema) -> None:
        self._fetch_schema = fetch_schema
        self._decoders: OrderedDict[tuple[SchemaKey, tuple[int, ...]], ValueDecoder] = OrderedDict()

    def read(self, frame: FramedValue) -> TypedValue:
        """Decode a key or value.

        Raises:
            UnsupportedSchemaError: The schema is not supported.
            UndecodableValueError: The value does not match the schema.
            ChronikError: The schema does not exist, or cannot be fetched.
        """
        schema = self._fetch_schema(frame.schema)
        payload = frame.payload
        indexes: tuple[int, ...] = ()
        if schema.format is ValueFormat.PROTOBUF:
            if frame.indexes is None:
                indexes, payload = split_message_indexes(payload)
            else:
                indexes = split_message_indexes(frame.indexes)[0] if frame.indexes else (0,)
        decoder = self._get_decoder(frame.schema, schema, indexes)
        try:
            form = decoder.decode_value(payload)
        except RecursionError:
            raise UndecodableValueError("the value is nested too deeply") from None
        text = payload if schema.format is ValueFormat.JSON_SCHEMA else None
        return TypedValue(form, frame.schema, schema.format, indexes, text)

    def _get_decoder(self, key: SchemaKey, schema: WriterSchema, indexes: tuple[int, ...]) -> ValueDecoder:
        decoder = self._decoders.get((key, indexes))
        if decoder is None:
            decoder = self._decoders[key, indexes] = create_decoder(schema, indexes)
            if len(self._decoders) > CACHED_DECODERS_MAX:
                self._decoders.popitem(last=False)
        else:
            self._decoders.move_to_end((key, indexes))
        return decoder
