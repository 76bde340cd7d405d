"""The decoder of columns of Avro values: each type is read from many payloads at the same time with NumPy.

Payloads that contain anything unusual, such as an error or a value that its column cannot store, are only marked. The
decoder of single values reads them again. It alone decides about errors, so that both decoders agree.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from chronik.formats.avro.defaults import find_default
from chronik.formats.avro.layout import Form, Layout
from chronik.formats.avro.schema import DURATION_BYTES, INT_MAX, INT_MIN, MISSING, UUID_BYTES, AvroField, Kind
from chronik.formats.avro.values import (
    DURATION_FIELDS,
    KEY_SLOT_BYTES,
    NANOSECONDS_PER_DAY,
    FormCompiler,
    Payload,
    Read,
    read_json_text,
)
from chronik.formats.codec import (
    ALIASES_KEY,
    DAY_MAX,
    DAY_MIN,
    DEFAULT_KEY,
    FORMAT_KEY,
    JSON_TEXT,
    MICROSECONDS_MAX,
    MICROSECONDS_MIN,
    UndecodableValueError,
    UnsupportedSchemaError,
    encode_json,
)
from chronik.formats.decoded_size import ColumnBudget, ValueBudget
from chronik.formats.framing import get_binary_buffers
from chronik.formats.varint_arrays import (
    ONE_BYTE_VALUES,
    PADDING,
    Int64s,
    decode_zigzag,
    read_varints,
    view_words,
)

COLUMNS_MAX: Final = 10_000
"""Maximum columns of a table, including nested ones, that a schema may describe. A type that is used several times
counts each time, so that a short schema can describe any number of columns."""

ROWS_MIN: Final = 32
"""Minimum payloads, or lists with further items, that are read at the same time. Fewer are read faster one by one."""

TEXT_BYTES_MAX: Final = 1024 * 1024
"""Maximum bytes of JSON text and enum symbols in a value that is not read by the decoder of single values."""

SHORT_SYMBOL_CHARACTERS: Final = 32
"""Maximum length of enum symbols that are not counted by payload: a value of them is never too large for its payload,
since VALUE_BYTES_PER_BYTE_MAX is higher."""

# Arrow types


def build_value_field(layout: Layout) -> pa.Field:
    """Build the Arrow field for the layout of a schema. All fields are nullable: values that do not fit are null.

    Raises:
        UnsupportedSchemaError: The schema describes too many columns.
    """
    if layout.size > COLUMNS_MAX:
        raise UnsupportedSchemaError(f"the Avro schema describes {layout.size} columns, expected at most {COLUMNS_MAX}")
    return _build_field("value", layout, {})


def _build_field(name: str, layout: Layout, metadata: dict[bytes, bytes]) -> pa.Field:
    inner = layout
    while inner.form is Form.OPTIONAL:
        inner = inner.children[0]
    if inner.form is Form.JSON_TEXT:
        metadata[FORMAT_KEY] = JSON_TEXT
    return pa.field(name, _build_arrow_type(inner), metadata=metadata or None)


def _build_arrow_type(layout: Layout) -> pa.DataType:
    match layout.form:
        case Form.STRUCT:
            return pa.struct(
                [
                    _build_field(field.name, child, _build_field_metadata(field))
                    for field, child in zip(layout.type.fields, layout.children, strict=True)
                ]
            )
        case Form.LIST:
            return pa.list_(_build_field("item", layout.children[0], {}))
        case Form.MAP:
            return pa.map_(pa.string(), _build_field("value", layout.children[0], {}))
        case Form.DECIMAL:
            return pa.decimal128(*layout.precision_and_scale)
        case Form.TIMESTAMP:
            return pa.timestamp("us", "UTC" if layout.is_utc else None)
        case Form.DURATION:
            return pa.struct([(name, pa.int64()) for name in DURATION_FIELDS])
        case _:
            return _SCALAR_TYPES.get(layout.form, pa.string())


_SCALAR_TYPES: Final = {
    Form.BOOLEAN: pa.bool_(),
    Form.INT: pa.int32(),
    Form.LONG: pa.int64(),
    Form.FLOAT: pa.float32(),
    Form.DOUBLE: pa.float64(),
    Form.BYTES: pa.binary(),
    Form.FIXED: pa.binary(),
    Form.DATE: pa.date32(),
}


def _build_field_metadata(field: AvroField) -> dict[bytes, bytes]:
    metadata = {}
    if field.aliases:
        metadata[ALIASES_KEY] = json.dumps(field.aliases).encode()
    default = find_default(field)
    if default is not MISSING:
        metadata[DEFAULT_KEY] = encode_json(default)
    return metadata


# Batches


class _Batch:
    """The bytes of many payloads."""

    def __init__(self, payloads: pa.BinaryArray, budget: ColumnBudget) -> None:
        starts, ends, data = get_binary_buffers(payloads)
        start = int(starts[0])
        # Reads may exceed a payload by the longest number before they are checked.
        padding = np.zeros(PADDING, np.uint8)
        self.data = np.concatenate([padding, data[start : int(ends[-1])], padding])
        self.starts = starts - (start - PADDING)
        self.ends = ends - (start - PADDING)
        self.buffer = pa.py_buffer(self.data)
        self.is_marked = np.zeros(len(payloads), np.bool_)
        """Whether each payload must be read by the decoder of single values."""
        self.budget = budget
        self.text_bytes: Int64s | None = None
        """The bytes of JSON text and enum symbols in the value of each payload, except for short symbols."""
        self.words = view_words(self.data)
        self._bytes: bytes | None = None

    def add_text_bytes(self, payloads: Int64s, sizes: Int64s) -> None:
        """Add bytes of text in the values of payloads."""
        if self.text_bytes is None:
            self.text_bytes = np.zeros(len(self.is_marked), np.int64)
        np.add.at(self.text_bytes, payloads, sizes)

    @property
    def bytes(self) -> bytes:
        """The data as bytes, for functions that read single values."""
        if self._bytes is None:
            self._bytes = self.data.tobytes()
        return self._bytes


class _Cursor:
    """Positions in a batch. Each is in a different payload, or behind the previous one in the same payload."""

    __slots__ = ("batch", "ends", "payloads", "positions")

    def __init__(self, batch: _Batch, positions: Int64s, ends: Int64s, payloads: Int64s) -> None:
        self.batch = batch
        self.positions = positions
        self.ends = ends
        """The ends of the payloads."""
        self.payloads = payloads
        """The indexes of the payloads."""

    def __len__(self) -> int:
        return len(self.positions)

    def select(self, indexes: Int64s) -> _Cursor:
        """Return a cursor with some of the positions."""
        return _Cursor(self.batch, self.positions[indexes], self.ends[indexes], self.payloads[indexes])

    def mark(self, indexes: npt.NDArray[Any]) -> None:
        """Mark payloads, by indexes or a mask of their positions, and move to their ends."""
        self.batch.is_marked[self.payloads[indexes]] = True
        self.positions[indexes] = self.ends[indexes]

    def check(self) -> None:
        """Mark the payloads whose ends are exceeded."""
        is_beyond = self.positions > self.ends
        if is_beyond.any():
            self.mark(is_beyond)

    def read_longs(self) -> Int64s:
        """Read a varint at each position."""
        data = self.batch.data
        first = data.take(self.positions)
        values = ONE_BYTE_VALUES.take(first)
        longer = np.flatnonzero(first & 0x80)
        if longer.size == len(self):
            values, lengths = self._read_long_varints(self.positions)
            self.positions += lengths
        else:
            if longer.size:
                values[longer], lengths = self._read_long_varints(self.positions[longer])
                self.positions[longer] += lengths - 1
            self.positions += 1
        self.check()
        return values

    def _read_long_varints(self, positions: Int64s) -> tuple[Int64s, Int64s]:
        """Return varints of two bytes or more, and their lengths. That of an invalid one exceeds any payload."""
        raw, lengths = read_varints(self.batch.data, self.batch.words, positions)
        return decode_zigzag(raw), lengths


ReadColumn = Callable[[_Cursor], pa.Array]
"""A function that reads a value at each position of a cursor."""


class ColumnDecoder:
    """A decoder of columns with a layout."""

    def __init__(self, layout: Layout, arrow_type: pa.DataType, forms: FormCompiler) -> None:
        self._read = _Compiler(forms).compile(layout, arrow_type)
        self._slot_bytes = layout.slot_bytes

    def decode(self, payloads: pa.BinaryArray, budget: ColumnBudget) -> tuple[pa.Array, Int64s]:
        """Decode payloads. Return an array, and the indexes of those that the decoder of single values must read.

        At least ROWS_MIN payloads have items at the same positions of lists. So if the size of a value exceeded that
        of single values because of its items, the budget would be exceeded.

        Raises:
            ColumnTooLargeError: See `ColumnBudget.take`.
        """
        budget.take(self._slot_bytes * len(payloads))
        batch = _Batch(payloads, budget)
        cursor = _Cursor(batch, batch.starts.copy(), batch.ends, np.arange(len(payloads)))
        array = self._read(cursor)
        cursor.mark(cursor.positions != cursor.ends)
        if batch.text_bytes is not None:
            batch.is_marked |= batch.text_bytes > TEXT_BYTES_MAX
        return array, np.flatnonzero(batch.is_marked)


class _Compiler:
    """A compiler of functions that read columns."""

    def __init__(self, forms: FormCompiler) -> None:
        self._forms = forms
        self._depth = 0
        """The number of structs around the current layout."""

    def compile(self, layout: Layout, arrow_type: pa.DataType) -> ReadColumn:
        """Return the function that reads values with a layout."""
        match layout.form:
            case Form.STRUCT:
                self._depth += 1
                reads = [
                    self.compile(child, field.type) for child, field in zip(layout.children, arrow_type, strict=True)
                ]
                self._depth -= 1
                return _read_structs(arrow_type, reads)
            case Form.OPTIONAL:
                return _read_optional(layout, arrow_type, self.compile(layout.children[0], arrow_type))
            case Form.LIST:
                item = layout.children[0]
                return _read_lists(arrow_type, self.compile(item, arrow_type.value_type), item.slot_bytes)
            case Form.MAP:
                value = layout.children[0]
                return _read_maps(arrow_type, self.compile(value, arrow_type.item_type), value.slot_bytes)
            case Form.JSON_TEXT:
                value_budget = ValueBudget()
                read_text = read_json_text(layout.type, self._forms.compile(layout.type), value_budget)
                return _read_json_texts(read_text, value_budget, self._depth)
            case _:
                return _compile_scalar(layout, arrow_type)


def _compile_scalar(layout: Layout, arrow_type: pa.DataType) -> ReadColumn:
    match layout.form:
        case Form.BOOLEAN:
            return _read_booleans
        case Form.INT:
            return lambda cursor: _build_array(arrow_type, _read_ints(cursor).astype(np.int32))
        case Form.LONG:
            return lambda cursor: _build_array(arrow_type, cursor.read_longs())
        case Form.FLOAT:
            return lambda cursor: _build_array(arrow_type, _read_words(cursor, 4).astype(np.uint32))
        case Form.DOUBLE:
            return lambda cursor: _build_array(arrow_type, _read_words(cursor, 8))
        case Form.BYTES:
            return lambda cursor: _take_slices(cursor.batch.buffer, *_read_slices(cursor, None))
        case Form.FIXED:
            return lambda cursor: _take_slices(cursor.batch.buffer, *_read_slices(cursor, layout.type.size))
        case Form.STRING:
            return _read_strings
        case Form.ENUM:
            return _read_enums(layout)
        case Form.DECIMAL:
            return _read_decimals(layout, arrow_type)
        case Form.UUID:
            return _read_uuids
        case Form.DURATION:
            return _read_durations(arrow_type)
        case Form.DATE:
            return _read_dates
        case Form.TIME:
            return _read_times(layout)
        case Form.TIMESTAMP:
            return _read_timestamps(layout, arrow_type)
        case _:
            return _read_nanosecond_timestamps(layout)


# Scalars


def _build_array(arrow_type: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _read_booleans(cursor: _Cursor) -> pa.Array:
    values = cursor.batch.data.take(cursor.positions)
    cursor.positions += 1
    cursor.check()
    if (values > 1).any():
        cursor.mark(values > 1)
    return pa.array(values.astype(np.bool_))


def _read_ints(cursor: _Cursor) -> Int64s:
    values = cursor.read_longs()
    _mark_outside(cursor, values, INT_MIN, INT_MAX)
    return values


def _mark_outside(cursor: _Cursor, values: Int64s, low: int, high: int) -> None:
    """Mark the payloads of values outside of a range, and replace the values by 0."""
    if len(values) and (values.min() < low or values.max() > high):
        is_outside = (values < low) | (values > high)
        cursor.mark(is_outside)
        values[is_outside] = 0


def _read_words(cursor: _Cursor, size: int) -> npt.NDArray[np.uint64]:
    words = cursor.batch.words[cursor.positions]
    cursor.positions += size
    cursor.check()
    return words


def _read_slices(cursor: _Cursor, size: int | None) -> tuple[Int64s, Int64s]:
    """Return the start and end of a slice at each position. If `size` is None, its length precedes it."""
    if size is None:
        lengths = cursor.read_longs()
        is_invalid = (lengths < 0) | (lengths > cursor.ends - cursor.positions)
        if is_invalid.any():
            cursor.mark(is_invalid)
            lengths[is_invalid] = 0
        starts = cursor.positions.copy()
        cursor.positions += lengths
        return starts, cursor.positions.copy()
    starts = cursor.positions.copy()
    cursor.positions += size
    is_beyond = cursor.positions > cursor.ends
    if is_beyond.any():
        cursor.mark(is_beyond)
        starts[is_beyond] = cursor.ends[is_beyond]
    return starts, cursor.positions.copy()


def _take_slices(data: pa.Buffer, starts: Int64s, ends: Int64s) -> pa.BinaryArray:
    """Copy slices, which are in ascending order, to an array."""
    if not len(starts):
        return pa.array([], pa.binary())
    # In an array of the slices and the gaps between them, each second element is a slice.
    bounds = np.empty(2 * len(starts) + 1, np.int32)
    bounds[0:-1:2] = starts
    bounds[1::2] = ends
    bounds[-1] = ends[-1]
    both = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), data])
    return both.take(pa.array(np.arange(0, len(bounds) - 1, 2)))


def _read_strings(cursor: _Cursor) -> pa.StringArray:
    values = _take_slices(cursor.batch.buffer, *_read_slices(cursor, None))
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = []
        for index, value in enumerate(values.to_pylist()):
            try:
                texts.append(value.decode())
            except UnicodeDecodeError:
                cursor.mark(np.array([index]))
                texts.append("")
        return pa.array(texts, pa.string())


def _read_enums(layout: Layout) -> ReadColumn:
    symbols = pa.array(layout.type.symbols, pa.string())
    lengths = np.array([len(symbol) for symbol in layout.type.symbols], np.int64)
    has_long_symbols = bool((lengths > SHORT_SYMBOL_CHARACTERS).any())

    def read(cursor: _Cursor) -> pa.Array:
        indexes = cursor.read_longs()
        if not len(symbols):
            cursor.mark(np.ones(len(cursor), np.bool_))
            return pa.nulls(len(cursor), pa.string())
        _mark_outside(cursor, indexes, 0, len(symbols) - 1)
        sizes = lengths.take(indexes)
        cursor.batch.budget.take(int(sizes.sum()))
        if has_long_symbols:
            cursor.batch.add_text_bytes(cursor.payloads, sizes)
        return symbols.take(pa.array(indexes))

    return read


def _read_decimals(layout: Layout, arrow_type: pa.DataType) -> ReadColumn:
    size = layout.type.size if layout.type.kind is Kind.FIXED else None
    limit = 10 ** layout.precision_and_scale[0]
    low_limit, high_limit = _split_128(limit)
    low_minimum, high_minimum = _split_128(-limit)

    def read(cursor: _Cursor) -> pa.Array:
        starts, ends = _read_slices(cursor, size)
        lengths = ends - starts
        if size is None or size > UUID_BYTES:
            is_long = lengths > 16
            if is_long.any():
                cursor.mark(is_long)
                lengths[is_long] = 0
        # The last 8 bytes as a big-endian number, shifted so that only those of the decimal remain.
        words = cursor.batch.words[ends - 8].byteswap().view(np.int64)
        shifts = 64 - 8 * np.minimum(lengths, 8)
        low = np.where(lengths > 0, words << (shifts & 63) >> (shifts & 63), 0)
        high = low >> 63
        wide = np.flatnonzero(lengths > 8)
        if wide.size:
            words = cursor.batch.words[ends[wide] - 16].byteswap().view(np.int64)
            shifts = 128 - 8 * lengths[wide]
            high[wide] = words << shifts >> shifts
        unsigned = low.view(np.uint64)
        is_outside = (high > high_limit) | ((high == high_limit) & (unsigned >= low_limit))
        is_outside |= (high < high_minimum) | ((high == high_minimum) & (unsigned <= low_minimum))
        if is_outside.any():
            cursor.mark(is_outside)
            low[is_outside] = high[is_outside] = 0
        return _build_array(arrow_type, np.stack([low, high], axis=1))

    return read


def _split_128(number: int) -> tuple[np.uint64, np.int64]:
    return np.uint64(number & 0xFFFFFFFFFFFFFFFF), np.int64(number >> 64)


_HEX: Final = np.frombuffer("".join(f"{byte:02x}" for byte in range(0x100)).encode(), np.uint16)
_UUID_LENGTH: Final = 36


def _read_uuids(cursor: _Cursor) -> pa.Array:
    starts, _ = _read_slices(cursor, UUID_BYTES)
    digits = _HEX[cursor.batch.data[starts[:, np.newaxis] + np.arange(UUID_BYTES)]].view(np.uint8)
    text = np.insert(digits.reshape(len(cursor), 2 * UUID_BYTES), (8, 12, 16, 20), ord("-"), axis=1)
    bounds = np.arange(0, _UUID_LENGTH * len(cursor) + 1, _UUID_LENGTH, dtype=np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(text))]
    return pa.Array.from_buffers(pa.string(), len(cursor), buffers)


def _read_durations(arrow_type: pa.StructType) -> ReadColumn:
    low = np.uint64(0xFFFFFFFF)

    def read(cursor: _Cursor) -> pa.StructArray:
        starts, _ = _read_slices(cursor, DURATION_BYTES)
        first, second = cursor.batch.words[starts], cursor.batch.words[starts + 8]
        numbers = (first & low, first >> np.uint64(32), second & low)
        arrays = [pa.array(each.view(np.int64)) for each in numbers]
        return pa.StructArray.from_arrays(arrays, fields=list(arrow_type))

    return read


def _read_dates(cursor: _Cursor) -> pa.Array:
    days = cursor.read_longs()
    _mark_outside(cursor, days, DAY_MIN, DAY_MAX)
    return _build_array(pa.date32(), days.astype(np.int32))


def _read_times(layout: Layout) -> ReadColumn:
    unit_ns = layout.unit_ns

    def read(cursor: _Cursor) -> pa.Array:
        units = cursor.read_longs()
        _mark_outside(cursor, units, 0, NANOSECONDS_PER_DAY // unit_ns - 1)
        microseconds = units * (unit_ns // 1000)
        texts = _build_array(pa.time64("us"), microseconds).cast(pa.string())
        rest = microseconds % 1_000_000
        lengths = np.where(rest == 0, 8, np.where(rest % 1000 == 0, 12, 15))
        starts = np.arange(len(cursor), dtype=np.int64) * 15
        return _take_slices(texts.buffers()[2], starts, starts + lengths).cast(pa.string())

    return read


def _read_timestamps(layout: Layout, arrow_type: pa.DataType) -> ReadColumn:
    factor = layout.unit_ns // 1000
    low, high = -(-MICROSECONDS_MIN // factor), MICROSECONDS_MAX // factor

    def read(cursor: _Cursor) -> pa.Array:
        units = cursor.read_longs()
        _mark_outside(cursor, units, low, high)
        return _build_array(arrow_type, units * factor if factor > 1 else units)

    return read


def _read_nanosecond_timestamps(layout: Layout) -> ReadColumn:
    suffix = "Z" if layout.is_utc else ""

    def read(cursor: _Cursor) -> pa.Array:
        texts = _build_array(pa.timestamp("ns"), cursor.read_longs()).cast(pa.string())
        return pc.binary_join_element_wise(pc.utf8_replace_slice(texts, 10, 11, "T"), suffix, "")

    return read


def _read_json_texts(read_text: Read, value_budget: ValueBudget, depth: int) -> ReadColumn:
    def read(cursor: _Cursor) -> pa.Array:
        data = cursor.batch.bytes
        texts: list[str | None] = []
        failed = []
        positions, ends = cursor.positions.tolist(), cursor.ends.tolist()
        for index, (position, end) in enumerate(zip(positions, ends, strict=True)):
            payload = Payload(data, position, end)
            payload.depth = depth
            value_budget.reset(0)
            try:
                texts.append(read_text(payload))
            except (UndecodableValueError, RecursionError):
                failed.append(index)
                texts.append(None)
            else:
                cursor.batch.budget.take(value_budget.used)
            positions[index] = payload.position
        cursor.positions[:] = positions
        if failed:
            cursor.mark(np.array(failed))
        array = pa.array(texts, pa.string())
        cursor.batch.add_text_bytes(cursor.payloads, pc.fill_null(pc.binary_length(array), 0).to_numpy())
        return array

    return read


# Nested types


def _read_structs(arrow_type: pa.StructType, reads: list[ReadColumn]) -> ReadColumn:
    fields = list(arrow_type)
    return lambda cursor: pa.StructArray.from_arrays([read(cursor) for read in reads], fields=fields)


def _read_optional(layout: Layout, arrow_type: pa.DataType, read_branch: ReadColumn) -> ReadColumn:
    branch, null_branch = layout.branch, layout.null_branch

    def read(cursor: _Cursor) -> pa.Array:
        branches = cursor.read_longs()
        is_present = branches == branch
        if is_present.all():
            return read_branch(cursor)
        is_invalid = ~is_present if null_branch is None else ~is_present & (branches != null_branch)
        if is_invalid.any():
            cursor.mark(is_invalid)
        present = np.flatnonzero(is_present)
        if not present.size:
            return pa.nulls(len(cursor), arrow_type)
        selected = cursor.select(present)
        values = read_branch(selected)
        cursor.positions[present] = selected.positions
        return values.take(pa.array(np.cumsum(is_present) - 1, mask=~is_present))

    return read


def _read_lists(arrow_type: pa.ListType, read_item: ReadColumn, item_bytes: int) -> ReadColumn:
    def read(cursor: _Cursor) -> pa.ListArray:
        bounds, (items,) = _read_blocks(cursor, [read_item], [arrow_type.value_type], item_bytes)
        return pa.ListArray.from_arrays(bounds, items, type=arrow_type)

    return read


def _read_maps(arrow_type: pa.MapType, read_value: ReadColumn, value_bytes: int) -> ReadColumn:
    arrow_types = [pa.string(), arrow_type.item_type]
    entry_bytes = KEY_SLOT_BYTES + value_bytes

    def read(cursor: _Cursor) -> pa.MapArray:
        bounds, (keys, values) = _read_blocks(cursor, [_read_strings, read_value], arrow_types, entry_bytes)
        _mark_repeated_keys(cursor, bounds, keys)
        return pa.MapArray.from_arrays(bounds, keys, values, type=arrow_type)

    return read


def _read_blocks(
    cursor: _Cursor, reads: list[ReadColumn], arrow_types: list[pa.DataType], item_bytes: int
) -> tuple[pa.Array, list[pa.Array]]:
    """Read the items of arrays or the entries of maps. Return the bounds of each position's items, and the items.

    In each round, the next item of all positions is read that have one.
    """
    active = np.arange(len(cursor))
    left = np.zeros(len(cursor), np.int64)
    rounds: list[list[pa.Array]] = []
    owners: list[Int64s] = []
    while active.size:
        reading = cursor.select(active)
        starting = np.flatnonzero(left[active] == 0)
        if starting.size:
            block_start = reading.select(starting)
            left[active[starting]] = _read_block_counts(block_start)
            reading.positions[starting] = block_start.positions
        has_item = left[active] > 0
        if not has_item.all():
            cursor.positions[active] = reading.positions
            active = active[has_item]
            if not active.size:
                break
            reading = cursor.select(active)
        if active.size < ROWS_MIN:
            cursor.mark(active)
            break
        cursor.batch.budget.take(active.size * item_bytes)
        rounds.append([read(reading) for read in reads])
        owners.append(active)
        cursor.positions[active] = reading.positions
        left[active] -= 1
        is_exhausted = cursor.batch.is_marked[reading.payloads]
        if is_exhausted.any():
            active = active[~is_exhausted]
    bounds = np.zeros(len(cursor) + 1, np.int32)
    if not rounds:
        return pa.array(bounds), [pa.nulls(0, each) for each in arrow_types]
    owner = np.concatenate(owners)
    np.cumsum(np.bincount(owner, minlength=len(cursor)), out=bounds[1:])
    if len(rounds) == 1:
        return pa.array(bounds), rounds[0]
    order = pa.array(np.argsort(owner, kind="stable"))
    return pa.array(bounds), [pa.concat_arrays(list(each)).take(order) for each in zip(*rounds, strict=True)]


def _read_block_counts(cursor: _Cursor) -> Int64s:
    """Read the number of items in a block at each position."""
    counts = cursor.read_longs()
    negative = np.flatnonzero(counts < 0)
    if negative.size:
        selected = cursor.select(negative)
        selected.read_longs()  # the bytes of the block
        cursor.positions[negative] = selected.positions
        counts[negative] = -counts[negative]
    # An item takes at least one byte; see `has_empty_values`. The count -2**63 stays negative.
    is_invalid = (counts > cursor.ends - cursor.positions) | (counts < 0)
    if is_invalid.any():
        cursor.mark(is_invalid)
        counts[is_invalid] = 0
    return counts


def _mark_repeated_keys(cursor: _Cursor, bounds: pa.Array, keys: pa.StringArray) -> None:
    """Mark the payloads of maps that contain a key twice: only the last value counts."""
    if not len(keys):
        return
    lengths = np.diff(bounds.to_numpy())
    owner = np.repeat(np.arange(len(lengths)), lengths)
    codes = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    entries = np.sort(owner * len(keys) + codes)
    repeated = entries[1:][entries[1:] == entries[:-1]]
    if repeated.size:
        cursor.mark(np.unique(repeated // len(keys)))
