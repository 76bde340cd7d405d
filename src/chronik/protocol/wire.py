"""The runtime of the compiled encoders and decoders: limits, errors, and rarely used helpers."""

from __future__ import annotations

import codecs
import struct
from typing import Final

from chronik import varint
from chronik.errors import ChronikError
from chronik.protocol.schema import Records

# The maximum number of array elements and tagged fields of a request. Kafka's largest clusters have 200,000 partitions,
# and a request may name each of them once; but 100 MB of two-byte elements must not become 50 million objects.
REQUEST_ELEMENTS_MAX: Final = 250_000

# Our own client decodes responses, from a broker it trusts, and they may describe a whole cluster: 100,000 partitions
# with three replicas are 900,000 elements in Metadata.
RESPONSE_ELEMENTS_MAX: Final = 2_000_000

# Kafka applies this limit to compact strings too, although only the int16 length of older versions requires it.
STRING_BYTES_MAX: Final = 0x7FFF

# Like Java, invalid UTF-8 is replaced, not rejected. A replacement character takes three bytes, and the string must
# still be encodable, so longer strings are rejected.
REPLACE_INVALID_UTF8: Final = "chronik.protocol.wire"
INVALID_UTF8_BYTES_MAX: Final = STRING_BYTES_MAX // 3

# Larger records are passed to the transport by reference; smaller ones are cheaper to copy.
COPIED_RECORDS_BYTES_MAX: Final = 16 * 1024

# Kafka's lengths, counts and tags are non-negative int32 numbers.
VARINT_MAX: Final = 0x7FFF_FFFF
VARINT_BYTES_MAX: Final = 5

# Arrays up to this length use a prebuilt struct.Struct; replica lists and most partition lists are shorter.
PREBUILT_COUNT_MAX: Final = 32


class MalformedMessage(ChronikError):
    """Bytes that cannot be decoded as a message of the given API and version."""


class UnencodableMessage(ChronikError):
    """A message that cannot be encoded, because a value is null, too long or of the wrong type in its version."""


class UnsupportedField(UnencodableMessage):
    """A message sets a field that its version lacks and that the receiver must not ignore."""


class UnknownApi(ChronikError):
    """A request with an unknown API key."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"unknown api key {api_key}, version {api_version}")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


class UnsupportedVersion(ChronikError):
    """A request with an API version that the broker does not support."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"version {api_version} of api key {api_key} is not supported")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


def _replace_invalid_utf8(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError) or len(error.object) > INVALID_UTF8_BYTES_MAX:
        raise MalformedMessage(f"a long string is not valid UTF-8: {error}")
    return "\N{REPLACEMENT CHARACTER}", error.end


codecs.register_error(REPLACE_INVALID_UTF8, _replace_invalid_utf8)


def build_length_error(field: str, length: int, left: int) -> MalformedMessage:
    """Return the error for a field whose length exceeds the remaining bytes."""
    return MalformedMessage(f"{field}: length {length} exceeds the {left} bytes left")


def build_count_error(field: str, count: int, left: int) -> MalformedMessage:
    """Return the error for an array whose element count exceeds what the remaining bytes can contain."""
    return MalformedMessage(f"{field}: {count} elements do not fit into {left} bytes")


def build_budget_error() -> MalformedMessage:
    """Return the error for a message that exceeds the limit on array elements and tagged fields."""
    return MalformedMessage("the message has too many array elements and tagged fields")


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most five bytes.

    Raises:
        MalformedMessage: The value has more than 31 bits.
        IndexError: The data is incomplete.
    """
    try:
        value, position = varint.read_varint(data, position, VARINT_BYTES_MAX)
    except varint.VarintTooLongError:
        value = VARINT_MAX + 1
    if value > VARINT_MAX:
        raise MalformedMessage("a varint has more than 31 bits")
    return value, position


write_varint = varint.write_varint


def read_tag(data: bytes | memoryview, position: int, size: int, last_tag: int) -> tuple[int, int, int]:
    """Read the header of a tagged field. Return its tag and the start and end of its value."""
    tag, position = read_varint(data, position)
    if tag <= last_tag:
        raise MalformedMessage(f"tag {tag} follows tag {last_tag}")
    length, position = read_varint(data, position)
    if length > size - position:
        raise build_length_error(f"tag {tag}", length, size - position)
    return tag, position, position + length


def skip_tags(data: bytes | memoryview, position: int, size: int, count: int) -> int:
    """Skip `count` unknown tagged fields, and return the position after them."""
    tag = -1
    for _ in range(count):
        tag, _, position = read_tag(data, position, size, tag)
    return position


def read_tag_count(data: bytes | memoryview, position: int, size: int, budget: int) -> tuple[int, int, int]:
    """Read the number of tagged fields. Return the number, the position after it and the remaining element budget."""
    count, position = read_varint(data, position)
    if count * 2 > size - position:  # a tag and a length take a byte each
        raise build_count_error("tagged fields", count, size - position)
    if count > budget:
        raise build_budget_error()
    return count, position, budget - count


class IntArrayCodec:
    """An encoder and decoder of arrays of integers with a fixed size."""

    def __init__(self, letter: str) -> None:
        self._letter = letter
        self._ready = [struct.Struct(f">{count}{letter}") for count in range(PREBUILT_COUNT_MAX + 1)]

    def _get_struct(self, count: int) -> struct.Struct:
        return self._ready[count] if count <= PREBUILT_COUNT_MAX else struct.Struct(f">{count}{self._letter}")

    def read(self, data: bytes | memoryview, position: int, count: int) -> list[int]:
        return list(self._get_struct(count).unpack_from(data, position))

    def pack(self, values: list[int]) -> bytes:
        return self._get_struct(len(values)).pack(*values)


INT_ARRAYS: Final = {letter: IntArrayCodec(letter) for letter in "bhiq"}


def records_length(value: Records) -> int:
    """Return the total size in bytes of a records value, which may consist of several buffers."""
    return sum(map(len, value)) if isinstance(value, list) else len(value)


def write_records(out: bytearray, chunks: list[bytes | bytearray | memoryview], value: Records) -> bytearray:
    """Append records to an encoded message. Return the buffer to which the next field is written.

    Large records are appended to `chunks` by reference; the result is a new `out`.
    """
    for chunk in value if isinstance(value, list) else (value,):
        if len(chunk) <= COPIED_RECORDS_BYTES_MAX:
            out += chunk
        else:
            chunks.append(out)
            chunks.append(chunk)
            out = bytearray()
    return out
