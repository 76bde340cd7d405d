"""What the compiled encoders and decoders call at run time: limits, errors, and the pieces too rare to be inlined."""

from __future__ import annotations

import codecs
import struct
from typing import Final

from chronik.errors import ChronikError
from chronik.protocol.schema import Records

# Every array element and every tagged field of a request counts. Kafka's largest clusters hold 200,000 partitions, so a
# request that names each of them once still passes, while 100 MB of two-byte elements cannot become 50 million objects
# (a quarter of a million cost at most some 80 MB and half a second).
REQUEST_ELEMENTS_MAX: Final = 250_000

# A response is read by our own client from a broker it chose, and may describe a whole cluster: 100,000 partitions with
# three replicas are 900,000 elements in Metadata.
RESPONSE_ELEMENTS_MAX: Final = 2_000_000

# Kafka refuses longer strings in compact form too, although only the old form, with its int16 length, is bound to it.
STRING_BYTES_MAX: Final = 0x7FFF

# Text that is not UTF-8 is no reason to refuse a message: like Java, we show what can be shown of it. One bad byte
# becomes three, and what we were sent we must be able to send back: so only where even that fits.
AS_FAR_AS_POSSIBLE: Final = "chronik.protocol.wire"
NOT_UTF8_BYTES_MAX: Final = STRING_BYTES_MAX // 3

# Records from this size on are handed to the transport by reference: copying less is cheaper than one more buffer.
RECORDS_COPIED_MAX: Final = 16 * 1024

# Lengths, counts and tags are non-negative int32 for Kafka.
VARINT_MAX: Final = 0x7FFF_FFFF

# Arrays up to this length have a ready-made struct.Struct: replica lists and most partition lists are shorter.
READY_COUNT_MAX: Final = 32


class MalformedMessage(ChronikError):
    """The bytes are not a message of the API and version they claim to be; the peer's fault."""


class UnencodableMessage(ChronikError):
    """A message holds a value that its version cannot carry (null, too long, of a wrong type); our own fault."""


class UnsupportedField(UnencodableMessage):
    """A request sets a field that its version does not have and that may not be silently lost."""


class UnknownApi(ChronikError):
    """The api key is none of ours."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"unknown api key {api_key}, version {api_version}")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


class UnsupportedVersion(ChronikError):
    """The api is ours, the version is not. Kafka answers UNSUPPORTED_VERSION under this correlation id."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"version {api_version} of api key {api_key} is not supported")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


def _replacement(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError) or len(error.object) > NOT_UTF8_BYTES_MAX:
        raise MalformedMessage(f"a long string that is not UTF-8: {error}")
    return "\N{REPLACEMENT CHARACTER}", error.end


codecs.register_error(AS_FAR_AS_POSSIBLE, _replacement)


def bad_length(field: str, length: int, left: int) -> MalformedMessage:
    return MalformedMessage(f"{field}: length {length} with {left} bytes left")


def bad_count(field: str, count: int, left: int) -> MalformedMessage:
    return MalformedMessage(f"{field}: {count} elements in {left} bytes")


def over_budget() -> MalformedMessage:
    return MalformedMessage("more array elements and tagged fields than any legitimate message holds")


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Reads an unsigned varint of at most five bytes. Raises IndexError when it is cut off."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > VARINT_MAX:
                break
            return value, position
    raise MalformedMessage("a varint beyond 31 bits")


def write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_tag(data: bytes | memoryview, position: int, size: int, last_tag: int) -> tuple[int, int, int]:
    """Returns the tag, start and end of one tagged field. Tags must ascend, which also rules out duplicates."""
    tag, position = read_varint(data, position)
    if tag <= last_tag:
        raise MalformedMessage(f"tag {tag} follows tag {last_tag}")
    length, position = read_varint(data, position)
    if length > size - position:
        raise bad_length(f"tag {tag}", length, size - position)
    return tag, position, position + length


def skip_tags(data: bytes | memoryview, position: int, size: int, count: int) -> int:
    """Steps over `count` unknown tagged fields; the caller has already charged them to its budget."""
    tag = -1
    for _ in range(count):
        tag, _, position = read_tag(data, position, size, tag)
    return position


def read_tag_count(data: bytes | memoryview, position: int, size: int, budget: int) -> tuple[int, int, int]:
    """Returns the number of tagged fields, where they start, and the budget that is left after them."""
    count, position = read_varint(data, position)
    if count * 2 > size - position:  # a tag and a length take a byte each
        raise bad_count("tagged fields", count, size - position)
    if count > budget:
        raise over_budget()
    return count, position, budget - count


class IntArrays:
    """Arrays of one kind of integer, packed and unpacked in one go."""

    def __init__(self, letter: str) -> None:
        self._letter = letter
        self._ready = [struct.Struct(f">{count}{letter}") for count in range(READY_COUNT_MAX + 1)]

    def _struct(self, count: int) -> struct.Struct:
        return self._ready[count] if count <= READY_COUNT_MAX else struct.Struct(f">{count}{self._letter}")

    def read(self, data: bytes | memoryview, position: int, count: int) -> list[int]:
        return list(self._struct(count).unpack_from(data, position))

    def pack(self, values: list[int]) -> bytes:
        return self._struct(len(values)).pack(*values)


INT_ARRAYS: Final = {letter: IntArrays(letter) for letter in "bhiq"}


def records_length(value: Records) -> int:
    return sum(map(len, value)) if isinstance(value, list) else len(value)


def write_records(out: bytearray, chunks: list[bytes | bytearray | memoryview], value: Records) -> bytearray:
    """Appends `value`, by reference when large: then `out` so far becomes a chunk, and a new tail is returned."""
    for chunk in value if isinstance(value, list) else (value,):
        if len(chunk) <= RECORDS_COPIED_MAX:
            out += chunk
        else:
            chunks.append(out)
            chunks.append(chunk)
            out = bytearray()
    return out
