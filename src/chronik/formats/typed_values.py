"""Reading of single typed values: the schema that a key or value names is fetched, and the payload is decoded with it.

Tools that show records use this. Tables and queries decode columns in bulk instead.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from msgspec.json import format

from chronik.formats.codec import (
    JsonForm,
    UndecodableValueError,
    UnsupportedSchemaError,
    ValueDecoder,
    ValueFormat,
    WriterSchema,
    create_decoder,
    encode_json,
)
from chronik.formats.decoded_size import check_json_size
from chronik.formats.framing import (
    FramedValue,
    SchemaKey,
    UnframedValueError,
    find_schema_header,
    split_frame,
    split_message_indexes,
)

CACHED_DECODERS_MAX: Final = 200

JSON_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum size of a value's JSON, unless the payload itself is large. A byte of a payload may stand for a field or enum
symbol with a name of 1,000 characters, so that 256 KiB would become 260 MB."""

JSON_BYTES_PER_BYTE_MAX: Final = 16
"""Maximum size of a value's JSON per byte of the payload, if that is more than JSON_BYTES_MAX."""

_SHORT_NAME_CHARACTERS: Final = 8
"""Names up to this length make JSON no larger than numbers and punctuation do."""

_NAME: Final = re.compile(r"\w+")

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
        self._decoders: OrderedDict[tuple[SchemaKey, tuple[int, ...]], _CachedDecoder | str] = OrderedDict()
        """Decoders, or the reasons why there are none."""

    def read(self, frame: FramedValue) -> TypedValue:
        """Decode a key or value.

        Raises:
            UnsupportedSchemaError: The schema is not supported.
            UndecodableValueError: The value does not match the schema, or its JSON is too large.
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
        cached = self._get_decoder(frame.schema, schema, indexes)
        try:
            form = cached.decoder.decode_value(payload)
        except RecursionError:
            raise UndecodableValueError("the value is nested too deeply") from None
        text = payload if schema.format is ValueFormat.JSON_SCHEMA else None
        if text is None and cached.has_long_names:
            check_json_size(form, max(JSON_BYTES_MAX, JSON_BYTES_PER_BYTE_MAX * len(payload)))
        return TypedValue(form, frame.schema, schema.format, indexes, text)

    def _get_decoder(self, key: SchemaKey, schema: WriterSchema, indexes: tuple[int, ...]) -> _CachedDecoder:
        cached = self._decoders.get((key, indexes))
        if cached is None:
            try:
                cached = _CachedDecoder(create_decoder(schema, indexes), _has_long_names(schema))
            except UnsupportedSchemaError as error:
                cached = str(error)
            self._decoders[key, indexes] = cached
            if len(self._decoders) > CACHED_DECODERS_MAX:
                self._decoders.popitem(last=False)
        else:
            self._decoders.move_to_end((key, indexes))
        if isinstance(cached, str):
            raise UnsupportedSchemaError(cached)
        return cached


class _CachedDecoder(NamedTuple):
    decoder: ValueDecoder
    has_long_names: bool
    """Whether names in the schema may make the JSON of values much larger than the values."""


def _has_long_names(schema: WriterSchema) -> bool:
    texts = (schema.text, *(each.text for each in schema.references))
    if schema.format is ValueFormat.PROTOBUF and any("default" in text for text in texts):
        return True  # JSON contains the default values of absent fields
    return any(len(name[0]) > _SHORT_NAME_CHARACTERS for text in texts for name in _NAME.finditer(text))
