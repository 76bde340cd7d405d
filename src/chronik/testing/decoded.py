"""Records with decoded keys and values, for assertions about topics with typed values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from chronik.client.records import ConsumedRecord
from chronik.errors import ChronikError
from chronik.formats.codec import UndecodableValueError
from chronik.formats.framing import SchemaKey
from chronik.formats.registry_client import RegistryClient, parse_registry_settings
from chronik.formats.typed_values import TypedValueReader, find_frame
from chronik.protocol.records import RecordHeader


class DecodedRecord(NamedTuple):
    """A record whose typed key and value are decoded."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the Unix epoch."""
    key: Any
    """The decoded key, such as a dict; bytes if it names no schema, and None if it is null."""
    value: Any
    """The decoded value; bytes if it names no schema, and None if it is null."""
    headers: tuple[RecordHeader, ...]
    key_schema: SchemaKey | None
    """The id or GUID of the key's schema."""
    value_schema: SchemaKey | None
    """The id or GUID of the value's schema."""


def decode_records(records: Iterable[ConsumedRecord], registry: Mapping[str, str]) -> list[DecodedRecord]:
    """Decode the typed keys and values of records; `registry` are the settings of the registry's clients.

    Raises:
        UndecodableValueError: A key or value does not match its schema, or the schema does not exist.
        ChronikError: The registry does not respond.
    """
    settings = dict(registry)
    client = RegistryClient(parse_registry_settings(settings.pop("url"), settings))
    try:
        reader = TypedValueReader(client.fetch_schema)
        return [_decode_record(record, reader) for record in records]
    finally:
        client.close()


def _decode_record(record: ConsumedRecord, reader: TypedValueReader) -> DecodedRecord:
    key, key_schema = _decode_field(record, record.key, reader, is_key=True)
    value, value_schema = _decode_field(record, record.value, reader, is_key=False)
    return DecodedRecord(*record._replace(key=key, value=value), key_schema, value_schema)


def _decode_field(
    record: ConsumedRecord, data: bytes | None, reader: TypedValueReader, *, is_key: bool
) -> tuple[Any, SchemaKey | None]:
    frame = find_frame(data, record.headers, is_key=is_key)
    if frame is None:
        return data, None
    try:
        return reader.read(frame).form, frame.schema
    except ChronikError as error:
        field = "key" if is_key else "value"
        where = f"{record.topic}-{record.partition} offset {record.offset}"
        raise UndecodableValueError(f"{where}: the {field} cannot be decoded: {error}") from error
