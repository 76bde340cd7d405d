"""The decoder of columns of Protobuf values: each field is read from many payloads at the same time with NumPy.

Messages are read in passes. A pass reads one field of all messages whose next field has the lowest number, so that
messages with their fields in the usual order take one pass per field. Payloads that contain anything unusual, such as
an error or a value that its column cannot store, are only marked. The decoder of single values reads them again. It
alone decides about errors, so that both decoders agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.formats.codec import (
    DEFAULT_KEY,
    FORMAT_KEY,
    JSON_TEXT,
    MESSAGE_KEY,
    MICROSECONDS_MAX,
    MICROSECONDS_MIN,
    NUMBER_KEY,
    UndecodableValueError,
    encode_json,
)
from chronik.formats.decoded_size import VALUE_BYTES_MAX, VALUE_BYTES_PER_BYTE_MAX, ColumnBudget, ValueBudget
from chronik.formats.framing import get_binary_buffers
from chronik.formats.protobuf.layout import ColumnForm, FieldLayout
from chronik.formats.protobuf.types import MESSAGE, FieldType, MessageType
from chronik.formats.protobuf.values import NANOSECONDS, Unfit, build_field_form, compile_element
from chronik.formats.protobuf.wire import (
    FIXED32,
    FIXED64,
    LENGTH,
    VALUES_MAX,
    WireFormatError,
    get_wire_type,
    read_message,
)
from chronik.formats.varint_arrays import (
    INVALID_LENGTH,
    PADDING,
    Int64s,
    UInt64s,
    decode_zigzag,
    read_varints,
    view_words,
)

Mask = npt.NDArray[np.bool_]

PASS_MESSAGES_MIN: Final = 8
"""Minimum messages that are read in a pass. Fewer are read faster one by one."""

CELLS_MAX: Final = 50_000_000
"""Maximum fields of the messages in the payloads that are read at the same time. Absent fields take memory, too."""

PACKED_BYTES_MAX: Final = 1 << 20
"""Maximum bytes of packed fields that are read at the same time, unless a single one is longer."""

SHORT_NAME_CHARACTERS: Final = 24
"""Maximum length of enum names that are not counted by payload. Half of VALUE_BYTES_PER_BYTE_MAX is more."""

_END: Final = INVALID_LENGTH
"""The tag of messages without further fields."""

_TAG_BYTES_MAX: Final = 5


# Arrow types


def build_value_field(layouts: Sequence[FieldLayout]) -> pa.Field:
    """Build the Arrow field for the layouts of a message's fields. All fields are nullable."""
    return pa.field("value", pa.struct([_build_field(layout) for layout in layouts]))


def _build_field(layout: FieldLayout, message: str | None = None) -> pa.Field:
    field = layout.field
    metadata = {NUMBER_KEY: str(field.number).encode()}
    if message is not None:
        metadata[MESSAGE_KEY] = message.encode()
    default = build_field_form(field, None)
    if default is not None:
        metadata[DEFAULT_KEY] = encode_json(default)
    if layout.is_map:
        value = _build_element_field("value", layout.children[1])
        return pa.field(field.name, pa.map_(pa.string(), value), metadata=metadata)
    if layout.is_list:
        return pa.field(field.name, pa.list_(_build_element_field("item", layout)), metadata=metadata)
    if layout.form is ColumnForm.JSON_TEXT:
        metadata[FORMAT_KEY] = JSON_TEXT
    return pa.field(field.name, _build_arrow_type(layout), metadata=metadata)


def _build_element_field(name: str, layout: FieldLayout) -> pa.Field:
    is_json_text = layout.form is ColumnForm.JSON_TEXT
    return pa.field(name, _build_arrow_type(layout), metadata={FORMAT_KEY: JSON_TEXT} if is_json_text else None)


def _build_arrow_type(layout: FieldLayout) -> pa.DataType:
    match layout.form:
        case ColumnForm.STRUCT:
            assert layout.field.message is not None, "structs store messages"
            message = layout.field.message.full_name
            return pa.struct([_build_field(child, message) for child in layout.children])
        case ColumnForm.WRAPPER:
            return _build_arrow_type(layout.children[0])
        case ColumnForm.DECIMAL:
            return pa.decimal128(*layout.precision_and_scale)
        case _:
            return _SCALAR_TYPES.get(layout.form, pa.string())


_SCALAR_TYPES: Final = {
    ColumnForm.BOOLEAN: pa.bool_(),
    ColumnForm.INT: pa.int32(),
    ColumnForm.LONG: pa.int64(),
    ColumnForm.UNSIGNED_LONG: pa.decimal128(20, 0),
    ColumnForm.FLOAT: pa.float32(),
    ColumnForm.DOUBLE: pa.float64(),
    ColumnForm.BYTES: pa.binary(),
    ColumnForm.TIMESTAMP: pa.timestamp("us", "UTC"),
    ColumnForm.DATE: pa.date32(),
}


# Batches


class TooManyCellsError(Exception):
    """The messages in a batch have too many fields to read them at the same time."""


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
        self.values: Int64s = np.zeros(len(payloads), np.int64)
        """The number of fields of the messages in each payload, or a higher one: see `VALUES_MAX`."""
        self.budget = budget
        self.sizes: Int64s = np.zeros(len(payloads), np.int64)
        """The bytes of list elements, map entries and long text in the value of each payload."""
        self._cells = 0
        self.words = view_words(self.data)

    def count(self, payloads: Int64s, fields: int | Int64s) -> None:
        """Add fields of messages in payloads.

        Raises:
            TooManyCellsError: The batch must be split.
        """
        total = fields * len(payloads) if isinstance(fields, int) else int(fields.sum())
        self._cells += total
        if self._cells > CELLS_MAX:
            raise TooManyCellsError
        if isinstance(fields, int):
            self.values += np.bincount(payloads, minlength=len(self.values)) * fields
        else:
            np.add.at(self.values, payloads, fields)

    def add_elements(self, payloads: Int64s, element_bytes: int) -> None:
        """Add elements of lists or entries of maps in payloads.

        Raises:
            ColumnTooLargeError: See `ColumnBudget.take`.
        """
        self.budget.take(len(payloads) * element_bytes)
        if len(payloads):
            self.sizes += np.bincount(payloads, minlength=len(self.sizes)) * element_bytes

    def add_texts(self, payloads: Int64s, sizes: Int64s) -> None:
        """Add text in payloads. See `add_elements`."""
        self.budget.take(int(sizes.sum()))
        np.add.at(self.sizes, payloads, sizes)

    def find_marked(self) -> Int64s:
        """Return the indexes of the payloads that the decoder of single values must read."""
        sizes_max = np.maximum(VALUE_BYTES_MAX, VALUE_BYTES_PER_BYTE_MAX * (self.ends - self.starts)) // 2
        return np.flatnonzero(self.is_marked | (self.values > VALUES_MAX) | (self.sizes > sizes_max))

    def read_varints(self, positions: Int64s) -> tuple[UInt64s, Int64s]:
        """Return the varint at each position, and its length. That of an invalid one exceeds any payload."""
        first = self.data.take(positions)
        values = first.astype(np.uint64)
        lengths = np.ones(len(positions), np.int64)
        longer = np.flatnonzero(first & 0x80)
        if longer.size == len(positions) and longer.size:
            return self._read_long_varints(positions)
        if longer.size:
            values[longer], lengths[longer] = self._read_long_varints(positions[longer])
        return values, lengths

    def _read_long_varints(self, positions: Int64s) -> tuple[UInt64s, Int64s]:
        return read_varints(self.data, self.words, positions, ignores_excess_bits=True)


class _Frames:
    """Messages in a batch, or ranges with the elements of a packed field, in ascending order."""

    __slots__ = ("batch", "ends", "payloads", "starts")

    def __init__(self, batch: _Batch, starts: Int64s, ends: Int64s, payloads: Int64s) -> None:
        self.batch = batch
        self.starts = starts
        self.ends = ends
        self.payloads = payloads
        """The indexes of the payloads."""

    def __len__(self) -> int:
        return len(self.starts)

    def mark(self, indexes: npt.NDArray[Any]) -> None:
        """Mark the payloads of frames, by indexes or a mask."""
        self.batch.is_marked[self.payloads[indexes]] = True


# Occurrences of fields


class _Column:
    """The occurrences of a field in frames: numbers, or the bounds of slices."""

    def __init__(self, field: FieldType, frames: _Frames) -> None:
        self.field = field
        self.frames = frames
        self.owners: list[Int64s] = []
        """The indexes of the frames, for each pass."""
        self.first: list[npt.NDArray[Any]] = []
        """Numbers, or the starts of slices."""
        self.second: list[Int64s] = []
        """The ends of slices."""

    def add(self, owners: Int64s, first: npt.NDArray[Any], second: Int64s | None = None) -> None:
        self.owners.append(owners)
        self.first.append(first)
        if second is not None:
            self.second.append(second)

    def select_last(self) -> tuple[Mask | None, npt.NDArray[Any], Int64s]:
        """Return which frames contain the field, or None if all do; and the last number or slice in each of those."""
        count = len(self.frames)
        if len(self.owners) == 1:
            owners = self.owners[0]
            second = self.second[0] if self.second else owners
            if len(owners) == count:
                return None, self.first[0], second
            is_present = np.zeros(count, np.bool_)
            is_present[owners] = True
            return is_present, self.first[0], second
        is_present = np.zeros(count, np.bool_)
        if not self.owners:
            return is_present, np.zeros(0, np.uint64), np.zeros(0, np.int64)
        last = np.zeros(count, np.int64)
        at = 0
        for owners in self.owners:
            is_present[owners] = True
            last[owners] = np.arange(at, at + len(owners))
            at += len(owners)
        order = last[is_present]
        first = np.concatenate(self.first)[order]
        second = np.concatenate(self.second)[order] if self.second else order
        return (None if is_present.all() else is_present), first, second

    def find_repeated(self) -> Int64s:
        """Return the indexes of frames that contain the field more than once."""
        if len(self.owners) < 2:
            return np.zeros(0, np.int64)
        return np.flatnonzero(np.bincount(np.concatenate(self.owners)) > 1)

    def select_all(self) -> tuple[Int64s, Int64s, npt.NDArray[Any], Int64s]:
        """Return the bounds of each frame's elements, and for each element its frame, and its number or slice."""
        count = len(self.frames)
        bounds = np.zeros(count + 1, np.int64)
        if not self.owners:
            empty = np.zeros(0, np.int64)
            return bounds, empty, np.zeros(0, np.uint64), empty
        owners = np.concatenate(self.owners)
        first = np.concatenate(self.first)
        second = np.concatenate(self.second) if self.second else owners
        np.cumsum(np.bincount(owners, minlength=count), out=bounds[1:])
        if len(self.owners) > 1:
            order = np.argsort(owners, kind="stable")
            owners, first, second = owners[order], first[order], second[order]
        return bounds, owners, first, second


class _MessageReader:
    """A reader of the fields of a message type."""

    def __init__(self, message: MessageType, layouts: Sequence[FieldLayout]) -> None:
        self._fields = [layout.field for layout in layouts]
        self._by_tag: dict[int, int] = {}
        self._packed_by_tag: dict[int, int] = {}
        self._oneofs = [
            [index for index, field in enumerate(self._fields) if field.oneof == name] for name in message.oneofs
        ]
        for index, field in enumerate(self._fields):
            self._by_tag[field.number << 3 | get_wire_type(field.kind)] = index
            if field.is_repeated and field.kind not in (MESSAGE, "group", "string", "bytes"):
                self._packed_by_tag[field.number << 3 | LENGTH] = index

    def read(self, frames: _Frames) -> list[_Column]:
        """Read the occurrences of all fields."""
        batch = frames.batch
        batch.count(frames.payloads, len(self._fields))
        columns = [_Column(field, frames) for field in self._fields]
        everything = np.arange(len(frames))
        positions, tags = frames.starts.copy(), np.full(len(frames), _END)
        if len(frames):
            positions, tags = self._read_tags(frames, everything, positions, tags)
        while len(frames):
            tag = int(tags.min())
            if tag == _END:
                break
            indexes = everything if int(tags.max()) == tag else np.flatnonzero(tags == tag)
            column = self._by_tag.get(tag)
            packed = self._packed_by_tag.get(tag)
            if len(indexes) < PASS_MESSAGES_MIN < len(batch.is_marked) or not tag >> 3:
                self._stop(frames, indexes, tags)
                continue
            is_all = indexes is everything
            at, ends = (positions, frames.ends) if is_all else (positions[indexes], frames.ends[indexes])
            first, second, after = self._read_value(batch, tag & 7, at, ends)
            is_beyond = after > ends
            if is_beyond.any():
                self._stop(frames, indexes[is_beyond], tags)
                kept = ~is_beyond
                indexes, after = indexes[kept], after[kept]
                first = first[kept]
                second = None if second is None else second[kept]
                is_all = False
                if not len(indexes):
                    continue
            if column is not None:
                columns[column].add(indexes, first, second)
            elif packed is not None:
                assert second is not None
                self._read_packed(frames, indexes, first.view(np.int64), second, columns[packed])
            if is_all:
                positions = after
            else:
                positions[indexes] = after
            positions, tags = self._read_tags(frames, indexes, positions, tags)
        self._mark_unusual(columns, frames)
        return columns

    def _stop(self, frames: _Frames, indexes: Int64s, tags: Int64s) -> None:
        """Mark the payloads of frames, and stop reading the frames."""
        frames.mark(indexes)
        tags[indexes] = _END

    def _read_tags(self, frames: _Frames, indexes: Int64s, positions: Int64s, tags: Int64s) -> tuple[Int64s, Int64s]:
        """Read the next tags of some frames. Return the positions and tags of all frames."""
        is_all = len(indexes) == len(frames)
        at, ends = (positions, frames.ends) if is_all else (positions[indexes], frames.ends[indexes])
        has_more = at < ends
        if not has_more.all():
            tags[indexes[~has_more]] = _END
            indexes, at = indexes[has_more], at[has_more]
            is_all = False
            if not len(indexes):
                return positions, tags
        found, lengths = frames.batch.read_varints(at)
        if is_all:
            positions, tags = at + lengths, found.view(np.int64)
        else:
            positions[indexes] = at + lengths
            tags[indexes] = found.view(np.int64)
        if int(lengths.max()) > 1:
            is_invalid = (lengths > _TAG_BYTES_MAX) | (found > 0xFFFFFFFF)
            if is_invalid.any():
                self._stop(frames, indexes[is_invalid], tags)
        return positions, tags

    def _read_value(
        self, batch: _Batch, wire_type: int, at: Int64s, ends: Int64s
    ) -> tuple[npt.NDArray[Any], Int64s | None, Int64s]:
        """Return numbers or the bounds of slices, and the positions after them, which are too high for errors."""
        match wire_type:
            case 0:
                values, lengths = batch.read_varints(at)
                return values, None, at + lengths
            case 1 | 5:
                size = 8 if wire_type == FIXED64 else 4
                after = at + size
                words = batch.words[np.where(after > ends, 0, at)]
                return (words if size == 8 else words & np.uint64(0xFFFFFFFF)), None, after
            case 2:
                values, lengths = batch.read_varints(at)
                sizes = np.minimum(values, np.uint64(_END)).view(np.int64)
                starts = at + lengths
                return starts, starts + sizes, starts + sizes
            case _:  # groups, and invalid wire types
                return at, at, np.full(len(at), _END)

    def _read_packed(self, frames: _Frames, owners: Int64s, starts: Int64s, ends: Int64s, column: _Column) -> None:
        """Read the elements in slices."""
        batch = frames.batch
        wire_type = get_wire_type(column.field.kind)
        lengths = ends - starts
        if wire_type in (FIXED32, FIXED64):
            size = 8 if wire_type == FIXED64 else 4
            self._mark_owners(frames, owners, lengths % size != 0)
            counts = lengths // size
            positions = _expand(starts, counts, size)
            words = batch.words[positions]
            column.add(np.repeat(owners, counts), words if size == 8 else words & np.uint64(0xFFFFFFFF))
            return
        stops = np.cumsum(lengths)
        parts = []
        first = 0
        while first < len(owners):
            # Intermediate results take about 100 times the bytes.
            limit = int(stops[first] - lengths[first]) + PACKED_BYTES_MAX
            last = max(first + 1, int(np.searchsorted(stops, limit, "right")))
            part = slice(first, last)
            parts.append(self._read_packed_varints(frames, owners[part], starts[part], ends[part]))
            first = last
        column.add(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def _read_packed_varints(
        self, frames: _Frames, owners: Int64s, starts: Int64s, ends: Int64s
    ) -> tuple[Int64s, UInt64s]:
        """Read the varints in slices. Return the frame and the number of each."""
        batch = frames.batch
        lengths = ends - starts
        positions = _expand(starts, lengths, 1)
        is_last = batch.data[positions] < 0x80
        slices = np.repeat(np.arange(len(owners)), lengths)[is_last]
        stops = positions[is_last]
        # A number starts after the previous one, or at the start of its slice.
        is_first = np.ones(len(stops), np.bool_)
        is_first[1:] = slices[1:] != slices[:-1]
        begins = np.empty(len(stops), np.int64)
        begins[1:] = stops[:-1] + 1
        begins[is_first] = starts[slices[is_first]]
        values, sizes = batch.read_varints(begins)
        self._mark_owners(frames, owners[slices], sizes > 10)
        self._mark_owners(frames, owners, (lengths > 0) & (batch.data[ends - 1] > 0x7F))
        return owners[slices], values

    def _mark_owners(self, frames: _Frames, owners: Int64s, is_unusual: Mask) -> None:
        if is_unusual.any():
            frames.mark(owners[is_unusual])

    def _mark_unusual(self, columns: list[_Column], frames: _Frames) -> None:
        for field, column in zip(self._fields, columns, strict=True):
            if field.kind == MESSAGE and not field.is_repeated:
                frames.mark(column.find_repeated())  # occurrences of a message are merged
            if field.is_required:
                is_present = np.zeros(len(frames), np.bool_)
                for owners in column.owners:
                    is_present[owners] = True
                frames.mark(~is_present)
        for members in self._oneofs:
            # Only the last member counts. A member that occurs twice is also marked, which does no harm.
            present = [owners for index in members for owners in columns[index].owners]
            if len(present) > 1:
                frames.mark(np.flatnonzero(np.bincount(np.concatenate(present)) > 1))


def _expand(starts: Int64s, counts: Int64s, step: int) -> Int64s:
    """Return the positions of `counts` elements from each start."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before * step, counts) + np.arange(int(counts.sum())) * step


# Arrays


BuildArray = Callable[[_Column], pa.Array]
"""A function that builds an array with one element per frame from the occurrences of a field."""

BuildElements = Callable[[_Frames, npt.NDArray[Any], Int64s], pa.Array]
"""A function that builds an array from numbers, or from slices, of which each has a frame with the payload."""


class MessageColumnDecoder:
    """A decoder of columns of messages."""

    def __init__(self, message: MessageType, layouts: Sequence[FieldLayout], arrow_type: pa.StructType) -> None:
        self._read = _compile_message(message, layouts, arrow_type, 0)
        self._slot_bytes = sum(layout.slot_bytes for layout in layouts)

    def decode(self, payloads: pa.BinaryArray, budget: ColumnBudget) -> tuple[pa.Array, Int64s]:
        """Decode payloads. Return an array, and the indexes of those that the decoder of single values must read.

        Raises:
            TooManyCellsError: The payloads contain too many messages. Decode fewer of them.
            ColumnTooLargeError: See `ColumnBudget.take`.
        """
        budget.take(self._slot_bytes * len(payloads))
        batch = _Batch(payloads, budget)
        frames = _Frames(batch, batch.starts, batch.ends, np.arange(len(payloads)))
        array = self._read(frames)
        return array, batch.find_marked()


def _compile_message(
    message: MessageType, layouts: Sequence[FieldLayout], arrow_type: pa.StructType, depth: int
) -> Callable[[_Frames], pa.StructArray]:
    reader = _MessageReader(message, layouts)
    fields = list(arrow_type)
    builders = [_compile_field(layout, field.type, depth) for layout, field in zip(layouts, fields, strict=True)]

    def read(frames: _Frames) -> pa.StructArray:
        columns = reader.read(frames)
        arrays = [build(column) for build, column in zip(builders, columns, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=fields)

    return read


def _compile_field(layout: FieldLayout, arrow_type: pa.DataType, depth: int) -> BuildArray:
    if layout.is_map:
        return _compile_map(layout, arrow_type, depth)
    if layout.is_list:
        build_items = _compile_elements(layout, arrow_type.value_type, depth)

        def build_list(column: _Column) -> pa.ListArray:
            bounds, owners, first, second = column.select_all()
            frames = column.frames
            elements = _Frames(frames.batch, owners, owners, frames.payloads[owners])
            frames.batch.add_elements(elements.payloads, layout.element_bytes)
            items = build_items(elements, first, second)
            return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), items, type=arrow_type)

        return build_list
    return _compile_singular(layout, arrow_type, depth)


def _compile_singular(layout: FieldLayout, arrow_type: pa.DataType, depth: int) -> BuildArray:
    field = layout.field
    build_elements = _compile_elements(layout, arrow_type, depth)
    is_nullable = (field.has_presence and not field.has_explicit_default) or field.oneof is not None
    default = None if is_nullable else _build_default(layout, arrow_type)

    def build(column: _Column) -> pa.Array:
        is_present, first, second = column.select_last()
        frames = column.frames
        if is_present is None:
            return build_elements(frames, first, second)
        if not len(first):
            return pa.nulls(len(frames), arrow_type) if default is None else pa.repeat(default, len(frames))
        present = np.flatnonzero(is_present)
        elements = build_elements(_Frames(frames.batch, present, present, frames.payloads[present]), first, second)
        indexes = np.cumsum(is_present) - 1
        if default is None:
            return elements.take(pa.array(indexes, mask=~is_present))
        indexes[~is_present] = len(elements)
        return pa.concat_arrays([elements, pa.array([default.as_py()], arrow_type)]).take(pa.array(indexes))

    return build


def _build_default(layout: FieldLayout, arrow_type: pa.DataType) -> pa.Scalar:
    field = layout.field
    value = field.default
    if layout.form is ColumnForm.ENUM:
        assert field.enum is not None
        value = field.enum.names.get(value)
    return pa.scalar(value, arrow_type)


def _compile_map(layout: FieldLayout, arrow_type: pa.MapType, depth: int) -> BuildArray:
    message = layout.field.message
    assert message is not None
    reader = _MessageReader(message, layout.children)
    key_layout, value_layout = layout.children
    build_keys = _compile_keys(key_layout)
    build_values = _compile_map_values(value_layout, arrow_type.item_type, depth + 1)

    def build(column: _Column) -> pa.MapArray:
        bounds, owners, starts, ends = column.select_all()
        frames = column.frames
        entries = _Frames(frames.batch, starts.view(np.int64), ends, frames.payloads[owners])
        frames.batch.add_elements(entries.payloads, layout.element_bytes)
        key_column, value_column = reader.read(entries)
        keys, values = build_keys(key_column), build_values(value_column)
        _mark_repeated_keys(frames, bounds, keys)
        if keys.null_count:
            keys = keys.fill_null("")
        return pa.MapArray.from_arrays(pa.array(bounds, pa.int32()), keys, values, type=arrow_type)

    return build


def _compile_keys(layout: FieldLayout) -> BuildArray:
    """Return the function that builds the keys of maps. Absent keys are the default of their type."""
    form = ColumnForm.LONG if layout.form in (ColumnForm.INT, ColumnForm.UNSIGNED_LONG) else layout.form
    arrow_type = _SCALAR_TYPES.get(form, pa.string())
    build_elements = _compile_elements(layout, _SCALAR_TYPES.get(layout.form, pa.string()), 0)
    is_unsigned = layout.form is ColumnForm.UNSIGNED_LONG

    def build(column: _Column) -> pa.Array:
        is_present, first, second = column.select_last()
        frames = column.frames
        if is_unsigned:
            elements = pa.array(first.astype(np.uint64))
        else:
            elements = build_elements(_select(frames, is_present), first, second)
            if pa.types.is_integer(elements.type):
                elements = elements.cast(arrow_type)
        if is_present is not None:
            empty = "" if pa.types.is_string(elements.type) else False if pa.types.is_boolean(elements.type) else 0
            indexes = np.where(is_present, np.cumsum(is_present) - 1, len(elements))
            elements = pa.concat_arrays([elements, pa.array([empty], elements.type)]).take(pa.array(indexes))
        return elements.cast(pa.string())

    return build


def _select(frames: _Frames, is_present: Mask | None) -> _Frames:
    """Return frames for elements, of which only the payloads are used."""
    if is_present is None:
        return frames
    present = np.flatnonzero(is_present)
    return _Frames(frames.batch, present, present, frames.payloads[present])


def _compile_map_values(layout: FieldLayout, arrow_type: pa.DataType, depth: int) -> BuildArray:
    build_elements = _compile_elements(layout, arrow_type, depth)
    default = None if layout.field.message is not None else _build_default(layout, arrow_type)

    def build(column: _Column) -> pa.Array:
        is_present, first, second = column.select_last()
        frames = column.frames
        elements = build_elements(_select(frames, is_present), first, second)
        if is_present is None:
            return elements
        if default is None or default.as_py() is None:
            frames.mark(~is_present)  # the default of a message is not null, but a message
            return elements.take(pa.array(np.cumsum(is_present) - 1, mask=~is_present))
        indexes = np.where(is_present, np.cumsum(is_present) - 1, len(elements))
        return pa.concat_arrays([elements, pa.array([default.as_py()], arrow_type)]).take(pa.array(indexes))

    return build


def _mark_repeated_keys(frames: _Frames, bounds: Int64s, keys: pa.StringArray) -> None:
    """Mark the payloads of maps that contain a key twice: only the last value counts."""
    if not len(keys):
        return
    owners = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    codes = keys.dictionary_encode().indices.fill_null(-1).to_numpy().astype(np.int64)
    entries = np.sort(owners * (len(keys) + 1) + codes)
    repeated = entries[1:][entries[1:] == entries[:-1]]
    if repeated.size:
        frames.mark(np.unique(repeated // (len(keys) + 1)))


# Elements


def _compile_elements(layout: FieldLayout, arrow_type: pa.DataType, depth: int) -> BuildElements:
    """Return the function that builds values of a layout, without regard to whether it is a list."""
    field = layout.field
    match layout.form:
        case ColumnForm.BOOLEAN:
            return lambda frames, first, second: pa.array(first != 0)
        case ColumnForm.INT | ColumnForm.LONG:
            convert = _INTEGERS[field.kind]
            return lambda frames, first, second: _build_array(arrow_type, convert(first.view(np.uint64)))
        case ColumnForm.UNSIGNED_LONG:
            return lambda frames, first, second: _build_array(
                arrow_type, np.stack([first.view(np.uint64), np.zeros(len(first), np.uint64)], axis=1)
            )
        case ColumnForm.FLOAT:
            return lambda frames, first, second: _build_array(arrow_type, first.astype(np.uint32))
        case ColumnForm.DOUBLE:
            return lambda frames, first, second: _build_array(arrow_type, first)
        case ColumnForm.BYTES:
            return lambda frames, first, second: _take_slices(frames.batch.buffer, first.view(np.int64), second)
        case ColumnForm.STRING:
            return _build_strings
        case ColumnForm.ENUM:
            return _compile_enum(layout)
        case ColumnForm.STRUCT | ColumnForm.WRAPPER | ColumnForm.TIMESTAMP | ColumnForm.DATE:
            return _compile_nested(layout, arrow_type, depth + 1)
        case _:
            return _compile_single_values(layout, arrow_type, depth + 1)


def _build_array(arrow_type: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _to_int32(raw: UInt64s) -> npt.NDArray[Any]:
    return raw.astype(np.uint32).view(np.int32)


def _decode_zigzag32(raw: UInt64s) -> npt.NDArray[Any]:
    low = raw.astype(np.uint32)
    return (low >> np.uint32(1)).view(np.int32) ^ -(low & np.uint32(1)).view(np.int32)


def _decode_zigzag64(raw: UInt64s) -> npt.NDArray[Any]:
    return decode_zigzag(raw)


_INTEGERS: Final[dict[str, Callable[[UInt64s], npt.NDArray[Any]]]] = {
    "int32": _to_int32,
    "sfixed32": _to_int32,
    "sint32": _decode_zigzag32,
    "int64": lambda raw: raw.view(np.int64),
    "sfixed64": lambda raw: raw.view(np.int64),
    "sint64": _decode_zigzag64,
    "uint32": lambda raw: raw & np.uint64(0xFFFFFFFF),
    "fixed32": lambda raw: raw,
}


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


def _build_strings(frames: _Frames, starts: npt.NDArray[Any], ends: Int64s) -> pa.StringArray:
    values = _take_slices(frames.batch.buffer, starts.view(np.int64), ends)
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = []
        for index, value in enumerate(values.to_pylist()):
            try:
                texts.append(value.decode())
            except UnicodeDecodeError:
                frames.mark(np.array([index]))
                texts.append("")
        return pa.array(texts, pa.string())


def _compile_enum(layout: FieldLayout) -> BuildElements:
    enum = layout.field.enum
    assert enum is not None
    numbers = np.array(sorted(enum.names), np.int32)
    texts = [enum.names[number] for number in sorted(enum.names)]
    names = pa.array(texts, pa.string())
    sizes = np.array([len(text) for text in texts], np.int64)
    has_long_names = bool((sizes > SHORT_NAME_CHARACTERS).any())

    def build(frames: _Frames, first: npt.NDArray[Any], second: Int64s) -> pa.Array:
        values = _to_int32(first.view(np.uint64))
        if not len(names):
            frames.mark(np.ones(len(first), np.bool_))
            return pa.nulls(len(first), pa.string())
        indexes = np.minimum(np.searchsorted(numbers, values), len(numbers) - 1)
        is_unknown = numbers[indexes] != values
        if is_unknown.any():
            frames.mark(is_unknown)
        if has_long_names:
            frames.batch.add_texts(frames.payloads, sizes.take(indexes))
        else:
            frames.batch.budget.take(int(sizes.take(indexes).sum()))
        return names.take(pa.array(indexes))

    return build


def _compile_nested(layout: FieldLayout, arrow_type: pa.DataType, depth: int) -> BuildElements:
    message = layout.field.message
    assert message is not None
    if layout.form is ColumnForm.STRUCT:
        read = _compile_message(message, layout.children, arrow_type, depth)
        return lambda frames, first, second: read(_Frames(frames.batch, first.view(np.int64), second, frames.payloads))
    if layout.form is ColumnForm.WRAPPER:
        reader = _MessageReader(message, layout.children)
        build_value = _compile_map_values(layout.children[0], arrow_type, depth)

        def build_wrapper(frames: _Frames, first: npt.NDArray[Any], second: Int64s) -> pa.Array:
            (column,) = reader.read(_Frames(frames.batch, first.view(np.int64), second, frames.payloads))
            return build_value(column)

        return build_wrapper
    reader = _MessageReader(message, [FieldLayout(field, ColumnForm.LONG) for field in message.fields])
    names = [field.name for field in message.fields]
    kinds = {field.name: field.kind for field in message.fields}
    is_timestamp = layout.form is ColumnForm.TIMESTAMP

    def build(frames: _Frames, first: npt.NDArray[Any], second: Int64s) -> pa.Array:
        inner = _Frames(frames.batch, first.view(np.int64), second, frames.payloads)
        columns = dict(zip(names, reader.read(inner), strict=True))
        numbers = {name: _get_numbers(column, kinds[name]) for name, column in columns.items()}
        if is_timestamp:
            values, is_unfit = _to_microseconds(numbers["seconds"], numbers["nanos"])
        else:
            values, is_unfit = _to_days(numbers["year"], numbers["month"], numbers["day"])
        if is_unfit.any():
            inner.mark(is_unfit)
            values[is_unfit] = 0
        return _build_array(arrow_type, values)

    return build


def _get_numbers(column: _Column, kind: str) -> Int64s:
    """Return a number for each frame; 0 where it is absent."""
    is_present, first, _ = column.select_last()
    numbers: Int64s = _INTEGERS[kind](first.view(np.uint64)).astype(np.int64)
    if is_present is None:
        return numbers
    filled = np.zeros(len(is_present), np.int64)
    filled[is_present] = numbers
    return filled


def _to_microseconds(seconds: Int64s, nanos: Int64s) -> tuple[Int64s, Mask]:
    is_unfit = (nanos < 0) | (nanos >= NANOSECONDS) | (nanos % 1000 != 0)
    is_unfit |= (seconds < MICROSECONDS_MIN // 1_000_000) | (seconds > MICROSECONDS_MAX // 1_000_000)
    return np.where(is_unfit, 0, seconds) * 1_000_000 + nanos // 1000, is_unfit


def _to_days(year: Int64s, month: Int64s, day: Int64s) -> tuple[npt.NDArray[Any], Mask]:
    is_unfit = (year < 1) | (year > 9999) | (month < 1) | (month > 12) | (day < 1) | (day > 31)
    months = (np.where(is_unfit, 1970, year) - 1970) * 12 + np.where(is_unfit, 1, month) - 1
    first_days = months.astype("datetime64[M]").astype("datetime64[D]")
    next_days = (months + 1).astype("datetime64[M]").astype("datetime64[D]")
    is_unfit |= day > (next_days - first_days).astype(np.int64)
    return (first_days.astype(np.int64) + day - 1).astype(np.int32), is_unfit


def _find_fields_max(message: MessageType) -> int:
    """Return the highest number of fields of a message type and those that it uses."""
    seen = {id(message): message}
    pending = [message]
    while pending:
        for field in pending.pop().fields:
            if field.message is not None and id(field.message) not in seen:
                seen[id(field.message)] = field.message
                pending.append(field.message)
    return max(len(each.fields) for each in seen.values())


def _compile_single_values(layout: FieldLayout, arrow_type: pa.DataType, depth: int) -> BuildElements:
    """Return a function that reads each value by itself, for types that cannot be read in passes."""
    message = layout.field.message
    assert message is not None
    budget = ValueBudget()
    convert = compile_element(layout, budget)
    fields_max = _find_fields_max(message)

    def build(frames: _Frames, first: npt.NDArray[Any], second: Int64s) -> pa.Array:
        data = frames.batch.data
        # A message takes at least two bytes.
        frames.batch.count(frames.payloads, ((second - first.view(np.int64)) // 2 + 1) * fields_max)
        values: list[Any] = []
        sizes = np.zeros(len(first), np.int64)
        failed = []
        for index, (start, end) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            value = None
            budget.reset(0)
            try:
                value = convert(read_message(message, data[start:end].tobytes(), depth=depth))
            except (WireFormatError, UndecodableValueError):
                failed.append(index)
            frames.batch.budget.take(budget.used)
            sizes[index] = budget.used
            if type(value) is Unfit:
                failed.append(index)
                value = None
            values.append(value)
        if failed:
            frames.mark(np.array(failed))
        np.add.at(frames.batch.sizes, frames.payloads, sizes)
        return pa.array(values, arrow_type)

    return build
