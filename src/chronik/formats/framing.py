"""Wire formats of schema registries: how records name the schema of their key or value.

| framing            | location                                 | content                                          |
|--------------------|------------------------------------------|--------------------------------------------------|
| prefix with an id  | start of the key or value                | 0x00, four bytes of id, message indexes, payload |
| prefix with a GUID | start of the key or value                | 0x01, 16 bytes of GUID, message indexes, payload |
| header             | `__key_schema_id` or `__value_schema_id` | one of the above without the payload             |

A header takes precedence over a prefix. Only Protobuf values have message indexes, which select a message type of the
schema, so they are split off only when the format of the schema is known. Arrow arrays are split in bulk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from chronik.formats.codec import UndecodableValueError
from chronik.varint import VarintTooLongError, decode_zigzag, encode_zigzag, read_varint, write_varint

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"

ID_MAGIC, GUID_MAGIC = 0, 1
"""First byte of a frame with a schema's id, and of one with its GUID."""

ID_BYTES: Final = 5
GUID_BYTES: Final = 17

MESSAGE_INDEXES_MAX: Final = 64
"""Maximum number of message indexes, that is, of nested message types. Protobuf's parsers allow fewer."""

_VARINT_BYTES_MAX: Final = 10

_BINARY_BYTES_MAX: Final = 2**31 - 1

SchemaKey = int | UUID
"""The id or GUID of a schema."""


class UnframedValueError(UndecodableValueError):
    """A value that does not name its schema."""


class FramedValue(NamedTuple):
    """A key or value, split into the identity of its schema and the rest."""

    schema: SchemaKey
    payload: bytes
    """The encoded value. For Protobuf schemas, it starts with the message indexes unless `indexes` is set."""
    indexes: bytes | None = None
    """Encoded message indexes from a header; None if the schema was named by a prefix."""


def split_frame(value: bytes, header: bytes | None = None) -> FramedValue:
    """Split a key or value; `header` is the value of the record's header that names the schema.

    Raises:
        UnframedValueError: Neither the header nor the value names a schema.
    """
    if header is not None:
        key, rest = _split_schema_key(header, "schema header")
        return FramedValue(key, value, rest)
    key, rest = _split_schema_key(value, "value")
    return FramedValue(key, rest)


def _split_schema_key(data: bytes, what: str) -> tuple[SchemaKey, bytes]:
    if len(data) >= ID_BYTES and data[0] == ID_MAGIC:
        return int.from_bytes(data[1:ID_BYTES], "big"), data[ID_BYTES:]
    if len(data) >= GUID_BYTES and data[0] == GUID_MAGIC:
        return UUID(bytes=data[1:GUID_BYTES]), data[GUID_BYTES:]
    raise UnframedValueError(f"the {what} does not start with a schema id")


def find_schema_header(headers: Iterable[tuple[str, bytes | None]], *, is_key: bool) -> bytes | None:
    """Return the value of the header that names the schema of a record's key or value; the last one counts."""
    name = KEY_HEADER if is_key else VALUE_HEADER
    found = None
    for key, value in headers:
        if key == name:
            found = value
    return found


def split_message_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """Split encoded Protobuf message indexes off a payload. A single zero byte stands for the first message type.

    Raises:
        UndecodableValueError: The data does not start with message indexes.
    """
    count, position = _read_zigzag(data, 0)
    if count == 0:
        return (0,), data[position:]
    if not 0 < count <= MESSAGE_INDEXES_MAX:
        raise UndecodableValueError(f"the value has {count} message indexes, expected 1 to {MESSAGE_INDEXES_MAX}")
    indexes = []
    for _ in range(count):
        index, position = _read_zigzag(data, position)
        if index < 0:
            raise UndecodableValueError(f"the value has the negative message index {index}")
        indexes.append(index)
    return tuple(indexes), data[position:]


def _read_zigzag(data: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag varint and return it with the position behind it."""
    try:
        number, position = read_varint(data, position, _VARINT_BYTES_MAX)
    except (IndexError, VarintTooLongError):
        raise UndecodableValueError("the message indexes of the value are incomplete") from None
    return decode_zigzag(number), position


# Bulk


class FrameGroup(NamedTuple):
    """The keys or values of an array that were written with one schema."""

    schema: SchemaKey
    rows: npt.NDArray[np.int64]
    """Indexes in the array, in ascending order."""
    payloads: pa.BinaryArray
    """The payloads as in `FramedValue.payload`."""
    indexes: bytes | None = None
    """As in `FramedValue.indexes`."""


class SplitFrames(NamedTuple):
    """The groups of an array's frames. Null elements are in none."""

    groups: list[FrameGroup]
    errors: dict[int, str]
    """Reasons why elements name no schema, by index."""


def split_frames(values: pa.BinaryArray, headers: pa.ListArray | None = None, *, is_key: bool = False) -> SplitFrames:
    """Split an array of keys or values, and group them by schema. `headers` are lists of structs of key and value."""
    import numpy as np
    import pyarrow as pa

    groups: list[FrameGroup] = []
    errors: dict[int, str] = {}
    valid = np.ones(len(values), bool) if not values.null_count else values.is_valid().to_numpy(zero_copy_only=False)
    named = {} if headers is None else _find_schema_headers(headers, KEY_HEADER if is_key else VALUE_HEADER)
    has_header = np.zeros(len(values), bool)
    if named:
        by_header: dict[bytes, list[int]] = {}
        for row, header in named.items():
            if valid[row]:
                by_header.setdefault(header, []).append(row)
        for header, in_group in by_header.items():
            has_header[in_group] = True
            try:
                key, rest = _split_schema_key(header, "schema header")
            except UnframedValueError as error:
                errors.update(dict.fromkeys(in_group, str(error)))
                continue
            rows = np.array(in_group, np.int64)
            groups.append(FrameGroup(key, rows, values.take(pa.array(rows)), rest))
    starts, ends, data = get_binary_buffers(values)
    lengths = ends - starts
    is_id = valid & ~has_header & (lengths >= ID_BYTES)
    candidates = np.flatnonzero(is_id)
    first = data[starts[candidates]] if len(candidates) else np.zeros(0, np.uint8)
    with_id = candidates[first == ID_MAGIC]
    at = starts[with_id]
    ids = np.zeros(len(with_id), np.int64)
    for byte in range(1, ID_BYTES):
        ids = (ids << 8) | data[at + byte]
    if len(with_id) and (ids == ids[0]).all():
        partition = [(int(ids[0]), with_id)]
    else:
        order = np.argsort(ids, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(ids[order])) + 1)
        partition = [(int(ids[part[0]]), with_id[part]) for part in parts if len(part)]
    for number, rows in partition:
        selected = values if len(rows) == len(values) else values.take(pa.array(rows))
        groups.append(FrameGroup(number, rows, _strip_prefix(selected, ID_BYTES)))
    others = valid & ~has_header
    others[with_id] = False
    by_guid: dict[SchemaKey, list[int]] = {}
    for row in np.flatnonzero(others).tolist():
        try:
            schema, _ = _split_schema_key(values[row].as_py(), "key" if is_key else "value")
        except UnframedValueError as error:
            errors[row] = str(error)
            continue
        by_guid.setdefault(schema, []).append(row)
    for schema, in_group in by_guid.items():
        rows = np.array(in_group, np.int64)
        groups.append(FrameGroup(schema, rows, _strip_prefix(values.take(pa.array(rows)), GUID_BYTES)))
    return SplitFrames(groups, errors)


def _strip_prefix(values: pa.BinaryArray, length: int) -> pa.BinaryArray:
    import pyarrow.compute as pc

    return pc.binary_slice(values, length, stop=_BINARY_BYTES_MAX)  # without `stop`, pyarrow 26 computes a wrong size


def get_binary_buffers(values: pa.BinaryArray) -> tuple[Any, Any, Any]:
    """Return the start and end positions of the elements, and the bytes to which they refer."""
    import numpy as np
    import pyarrow as pa

    _, offsets, data = values.buffers()
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    if offsets is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint8)
    positions = np.frombuffer(offsets, width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return positions[:-1], positions[1:], content


def _find_schema_headers(headers: pa.ListArray, name: str) -> dict[int, bytes]:
    """Return the values of the headers with a name, by row; the last one of a record counts."""
    import pyarrow.compute as pc

    if headers.null_count == len(headers):
        return {}
    flat = pc.list_flatten(headers)
    matches = pc.indices_nonzero(pc.fill_null(pc.equal(pc.struct_field(flat, "key"), name), False))
    if not len(matches):
        return {}
    rows = pc.list_parent_indices(headers).take(matches).to_pylist()
    found = pc.struct_field(flat, "value").take(matches).to_pylist()
    return {row: value for row, value in zip(rows, found, strict=True) if value is not None}


class MessageGroup(NamedTuple):
    """The payloads of a group of frames that are of one Protobuf message type."""

    indexes: tuple[int, ...]
    rows: npt.NDArray[np.int64]
    """Indexes in the array that was split, as in `FrameGroup.rows`."""
    payloads: pa.BinaryArray


def split_message_groups(group: FrameGroup) -> tuple[list[MessageGroup], dict[int, str]]:
    """Split the frames of a Protobuf schema by message type. Return the groups, and errors by row."""
    import numpy as np
    import pyarrow as pa

    if group.indexes is not None:
        try:
            indexes = split_message_indexes(group.indexes)[0] if group.indexes else (0,)
        except UndecodableValueError as error:
            return [], dict.fromkeys(group.rows.tolist(), str(error))
        return [MessageGroup(indexes, group.rows, group.payloads)], {}
    starts, ends, data = get_binary_buffers(group.payloads)
    is_filled = ends > starts
    is_first_type = np.zeros(len(starts), bool)
    is_first_type[is_filled] = data[starts[is_filled]] == 0
    if is_first_type.all():
        return [MessageGroup((0,), group.rows, _strip_prefix(group.payloads, 1))] * bool(len(starts)), {}
    found: dict[tuple[int, ...], tuple[list[int], list[bytes]]] = {}
    errors: dict[int, str] = {}
    for position, payload in enumerate(group.payloads.to_pylist()):
        row = int(group.rows[position])
        try:
            indexes, rest = split_message_indexes(payload)
        except UndecodableValueError as error:
            errors[row] = str(error)
            continue
        rows, payloads = found.setdefault(indexes, ([], []))
        rows.append(row)
        payloads.append(rest)
    groups = [
        MessageGroup(indexes, np.array(rows, np.int64), pa.array(payloads, pa.binary()))
        for indexes, (rows, payloads) in found.items()
    ]
    return groups, errors


def encode_message_indexes(indexes: Sequence[int]) -> bytes:
    """Encode Protobuf message indexes as they precede a payload."""
    if tuple(indexes) == (0,):
        return b"\x00"
    encoded = bytearray()
    for number in (len(indexes), *indexes):
        write_varint(encoded, encode_zigzag(number))
    return bytes(encoded)
