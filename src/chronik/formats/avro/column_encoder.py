"""The encoder of Arrow columns: each field is encoded for all rows at the same time, and the parts are joined.

It encodes columns whose values certainly match the schema. `compile_column` returns None for types that it does not
support, and the functions raise `UnsupportedColumnError` for values that it does not support. The encoder of single
values handles both cases, and alone decides about errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from chronik.formats.avro.layout import Form, Layout
from chronik.formats.avro.schema import Kind
from chronik.formats.varint_arrays import encode_zigzag_varints

WriteColumn = Callable[[pa.Array], pa.BinaryArray]
"""A function that returns the encoded elements of an array, in which only values of unions may be null."""

ROWS_MIN: Final = 32
"""Minimum rows that are encoded at the same time. Fewer are encoded faster one by one."""

CHUNK_BYTES_MAX: Final = 2**30
"""Maximum bytes of a part of a column; positions have 32 bits."""


class UnsupportedColumnError(Exception):
    """A column has values that must be encoded one by one."""


def compile_column(layout: Layout, data_type: pa.DataType) -> WriteColumn | None:
    """Return the function that encodes arrays of a type with a layout, or None if the types are not supported."""
    is_a: Any = pa.types
    match layout.form:
        case Form.STRUCT if is_a.is_struct(data_type):
            return _compile_struct(layout, data_type)
        case Form.OPTIONAL:
            return _compile_optional(layout, data_type)
        case Form.LIST if is_a.is_list(data_type):
            return _compile_list(layout.children[0], data_type)
        case Form.MAP if is_a.is_map(data_type) and is_a.is_string(data_type.key_type):
            return _compile_map(layout.children[0], data_type)
        case Form.BOOLEAN if is_a.is_boolean(data_type):
            return _write_booleans
        case Form.INT if is_a.is_signed_integer(data_type) and data_type.bit_width <= 32:
            return _write_longs
        case Form.LONG if is_a.is_signed_integer(data_type):
            return _write_longs
        case Form.FLOAT if is_a.is_float32(data_type):
            return _write_floats
        case Form.DOUBLE if is_a.is_float32(data_type) or is_a.is_float64(data_type):
            return lambda array: _write_floats(array.cast(pa.float64()))
        case Form.STRING if is_a.is_string(data_type) and layout.logical_type is None:
            return lambda array: _write_with_length(array.cast(pa.binary()))
        case Form.BYTES if is_a.is_binary(data_type):
            return _write_with_length
        case Form.FIXED if is_a.is_binary(data_type):
            return lambda array: _check_length(array, layout.type.size)
        case Form.DECIMAL if is_a.is_decimal128(data_type):
            return _compile_decimal(layout, data_type)
        case Form.ENUM if is_a.is_string(data_type):
            return _compile_enum(layout)
        case Form.DATE if is_a.is_date32(data_type):
            return lambda array: _write_longs(array.cast(pa.int32()))
        case Form.TIMESTAMP if is_a.is_timestamp(data_type) and data_type.unit == "us":
            return _compile_timestamp(layout) if (data_type.tz is not None) is layout.is_utc else None
    return None


# Scalars


def _check_not_null(array: pa.Array) -> None:
    if array.null_count:
        raise UnsupportedColumnError("a value is null")


def _build(bounds: npt.NDArray[Any], content: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(content))]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)


def _write_booleans(array: pa.Array) -> pa.BinaryArray:
    _check_not_null(array)
    return _build(np.arange(len(array) + 1), array.cast(pa.uint8()).to_numpy())


def _write_longs(array: pa.Array) -> pa.BinaryArray:
    _check_not_null(array)
    return encode_zigzag_varints(array.cast(pa.int64()).to_numpy())


def _write_floats(array: pa.Array) -> pa.BinaryArray:
    _check_not_null(array)
    values = array.to_numpy()
    bounds = np.arange(len(array) + 1) * values.dtype.itemsize
    return _build(bounds, values.view(np.uint8))


def _write_with_length(array: pa.BinaryArray) -> pa.BinaryArray:
    _check_not_null(array)
    lengths = pc.binary_length(array).to_numpy().astype(np.int64)
    return _join([encode_zigzag_varints(lengths), array])


def _join(parts: Sequence[pa.BinaryArray]) -> pa.BinaryArray:
    """Return the concatenation of the elements of arrays."""
    if len(parts) == 1:
        return parts[0]
    if sum(each.nbytes for each in parts) > CHUNK_BYTES_MAX:
        raise UnsupportedColumnError("the column is too large")
    return pc.binary_join_element_wise(*parts, b"")


def _check_length(array: pa.BinaryArray, length: int) -> pa.BinaryArray:
    _check_not_null(array)
    if (pc.binary_length(array).to_numpy() != length).any():
        raise UnsupportedColumnError("a value has another length")
    return array


DECIMAL_DIGITS_MAX: Final = 18
"""Maximum digits of decimals that fit into 64 bits."""


def _compile_decimal(layout: Layout, data_type: pa.Decimal128Type) -> WriteColumn | None:
    precision, scale = layout.precision_and_scale
    if data_type.scale != scale or data_type.precision > min(precision, DECIMAL_DIGITS_MAX):
        return None
    is_fixed = layout.type.kind is Kind.FIXED
    if is_fixed and layout.type.size < 8:
        return None

    def write(array: pa.Array) -> pa.BinaryArray:
        _check_not_null(array)
        words = np.frombuffer(array.buffers()[1], np.int64)
        unscaled = words[2 * array.offset : 2 * (array.offset + len(array)) : 2].copy()
        big_endian = unscaled.byteswap().view(np.uint8).reshape(-1, 8)
        if is_fixed:
            sign = np.repeat(
                (unscaled < 0).astype(np.uint8)[:, np.newaxis] * np.uint8(0xFF), layout.type.size - 8, axis=1
            )
            return _build(np.arange(len(array) + 1) * layout.type.size, np.hstack([sign, big_endian]).ravel())
        lengths = np.ones(len(array), np.int64)
        for length in range(1, 8):
            lengths += (unscaled < -(1 << 8 * length - 1)) | (unscaled >= 1 << 8 * length - 1)
        is_used = np.arange(8) >= 8 - lengths[:, np.newaxis]
        bounds = np.zeros(len(array) + 1, np.int64)
        np.cumsum(lengths, out=bounds[1:])
        return _join([encode_zigzag_varints(lengths), _build(bounds, big_endian[is_used])])

    return write


def _compile_enum(layout: Layout) -> WriteColumn:
    symbols = pa.array(layout.type.symbols, pa.string())

    def write(array: pa.Array) -> pa.BinaryArray:
        return _write_longs(pc.index_in(array, symbols))  # null if the enum has no such symbol

    return write


def _compile_timestamp(layout: Layout) -> WriteColumn | None:
    factor = layout.unit_ns // 1000
    if not factor:
        return None

    def write(array: pa.Array) -> pa.BinaryArray:
        _check_not_null(array)
        microseconds = array.cast(pa.int64()).to_numpy()
        if factor == 1:
            return encode_zigzag_varints(microseconds)
        units, rest = np.divmod(microseconds, factor)
        if rest.any():
            raise UnsupportedColumnError("a timestamp has digits that the schema cannot store")
        return encode_zigzag_varints(units)

    return write


# Nested types


def _compile_struct(layout: Layout, data_type: pa.StructType) -> WriteColumn | None:
    names = [field.name for field in layout.type.fields]
    if [field.name for field in data_type] != names:
        return None
    writes = [compile_column(child, field.type) for child, field in zip(layout.children, data_type, strict=True)]
    if any(write is None for write in writes):
        return None

    def write_structs(array: pa.StructArray) -> pa.BinaryArray:
        _check_not_null(array)
        return _join([write(child) for write, child in zip(writes, array.flatten(), strict=True) if write is not None])

    return write_structs


def _compile_optional(layout: Layout, data_type: pa.DataType) -> WriteColumn | None:
    write_branch = compile_column(layout.children[0], data_type)
    if write_branch is None:
        return None
    null_branch = layout.null_branch

    def write(array: pa.Array) -> pa.BinaryArray:
        if not array.null_count:
            return _join([encode_zigzag_varints(np.full(len(array), layout.branch)), write_branch(array)])
        if null_branch is None:
            raise UnsupportedColumnError("a value is null")
        is_null = array.is_null().to_numpy(zero_copy_only=False)
        present = write_branch(array.filter(array.is_valid()))
        branches = encode_zigzag_varints(np.where(is_null, null_branch, layout.branch))
        indices = np.where(is_null, len(present), np.cumsum(~is_null) - 1)
        nothing = pa.array([b""], pa.binary())
        return _join([branches, pa.concat_arrays([present, nothing]).take(pa.array(indices))])

    return write


def _compile_list(item: Layout, data_type: pa.ListType) -> WriteColumn | None:
    write_item = compile_column(item, data_type.value_type)
    if write_item is None:
        return None

    def write(array: pa.ListArray) -> pa.BinaryArray:
        _check_not_null(array)
        offsets = array.offsets.to_numpy()
        values = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        return _write_blocks(offsets - offsets[0], write_item(values))

    return write


def _compile_map(item: Layout, data_type: pa.MapType) -> WriteColumn | None:
    write_item = compile_column(item, data_type.item_type)
    if write_item is None:
        return None

    def write(array: pa.MapArray) -> pa.BinaryArray:
        _check_not_null(array)
        offsets = array.offsets.to_numpy()
        start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        keys = _write_with_length(array.keys.slice(start, count).cast(pa.binary()))
        return _write_blocks(offsets - offsets[0], _join([keys, write_item(array.items.slice(start, count))]))

    return write


def _write_blocks(offsets: npt.NDArray[np.int32], items: pa.BinaryArray) -> pa.BinaryArray:
    """Return the encoded arrays or maps for encoded items, of which each array has a range."""
    counts = np.diff(offsets).astype(np.int64)
    _, bounds, content = items.buffers()
    item_bounds = np.frombuffer(bounds, np.int32)[items.offset : items.offset + len(items) + 1]
    content = pa.py_buffer(b"") if content is None else content
    joined_bounds = pa.py_buffer(np.ascontiguousarray(item_bounds[offsets]))
    joined = pa.Array.from_buffers(pa.binary(), len(counts), [None, joined_bounds, content])
    ends = np.arange(len(counts) + 1)
    ends[1:] = np.cumsum(counts > 0)  # an empty array is a single zero, which is its count as well
    return _join([encode_zigzag_varints(counts), joined, _build(ends, np.zeros(int(ends[-1]), np.uint8))])
