"""Vectorised encoding of Arrow columns into record batches, without a loop over records.

A record consists of varints with the key and the value between them. The varints of each column are encoded as a binary
column; Arrow then joins all columns row by row, and the buffer of the joined column is the body of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from chronik.client.producer import BATCH_BYTES_MAX, RECORD_OVERHEAD_BYTES
from chronik.pipeline.errors import SchemaError
from chronik.pipeline.records.varints import IntArray, encode_varints
from chronik.protocol.batch import MAGIC, NO_LEADER_EPOCH, TRANSACTIONAL_FLAG, BatchHeader, build_batch
from chronik.protocol.compression import Codec, compress


def encode_record_batch(
    keys: pa.BinaryArray,
    values: pa.BinaryArray,
    timestamps_ms: IntArray,
    *,
    headers: pa.BinaryArray | None = None,
    codec: Codec,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool = False,
) -> bytes:
    """Encode at least one record as a record batch; `headers` must be the result of `encode_headers`."""
    count = len(keys)
    base_timestamp = timestamps_ms[0]
    with np.errstate(over="ignore"):  # out-of-range timestamp deltas wrap around, as in Java
        timestamp_deltas = timestamps_ms - base_timestamp
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=codec | (TRANSACTIONAL_FLAG if transactional else 0),
        last_offset_delta=count - 1,
        base_timestamp=int(base_timestamp),
        max_timestamp=int(timestamps_ms.max()),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )
    return build_batch(header, compress(codec, _body(keys, values, timestamp_deltas, headers)))


def split_into_batches(keys: pa.BinaryArray, values: pa.BinaryArray, headers: pa.BinaryArray | None) -> Iterator[slice]:
    """Yield slices of consecutive rows that fit into one batch each."""
    sizes = (
        np.maximum(_compute_value_lengths(keys), 0)
        + np.maximum(_compute_value_lengths(values), 0)
        + RECORD_OVERHEAD_BYTES
    )
    if headers is not None:
        sizes += np.maximum(_compute_value_lengths(headers), 0)
    ends = np.cumsum(sizes)
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        after = max(first + 1, int(np.searchsorted(ends, before + BATCH_BYTES_MAX, side="right")))
        yield slice(first, after)
        first = after


def encode_headers(headers: pa.ListArray) -> pa.BinaryArray:
    """Return the encoded headers of each row: their count, followed by the headers, as in a record.

    Raises:
        SchemaError: A header has no name.
    """
    counts = np.maximum(pc.list_value_length(headers).fill_null(0).to_numpy(), 0).astype(np.int64)
    pairs = headers.flatten()
    names, values = pc.struct_field(pairs, "key").cast(pa.binary()), pc.struct_field(pairs, "value")
    if names.null_count:
        raise SchemaError("column `headers`: a header has no name (its `key` is null)")
    encoded = _join(
        encode_varints(_compute_value_lengths(names)),
        names,
        encode_varints(_compute_value_lengths(values)),
        values.fill_null(b""),
    )
    ends = np.cumsum(counts)
    bounds = np.concatenate([[0], np.cumsum(_compute_value_lengths(encoded))])
    rows = np.empty(len(counts) + 1, np.int32)
    rows[0], rows[1:] = 0, bounds[ends]
    joined = pa.BinaryArray.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(rows), _data(encoded)])
    return _join(encode_varints(counts), joined)


def _body(
    keys: pa.BinaryArray, values: pa.BinaryArray, timestamp_deltas: IntArray, headers: pa.BinaryArray | None
) -> bytes:
    count = len(keys)
    fields = _join(
        _repeat_bytes(b"\x00", count),  # the attributes, which are unused
        encode_varints(timestamp_deltas),
        encode_varints(np.arange(count, dtype=np.int64)),
        encode_varints(_compute_value_lengths(keys)),
        keys.fill_null(b""),
        encode_varints(_compute_value_lengths(values)),
        values.fill_null(b""),
        _repeat_bytes(b"\x00", count) if headers is None else headers,
    )
    records = _join(encode_varints(_compute_value_lengths(fields)), fields)
    return bytes(_data(records))


def _repeat_bytes(piece: bytes, count: int) -> pa.BinaryArray:
    return pa.repeat(pa.scalar(piece, pa.binary()), count)


def _join(*columns: pa.BinaryArray) -> pa.BinaryArray:
    return pc.binary_join_element_wise(*columns, b"")


def _get_value_bounds(column: pa.BinaryArray) -> npt.NDArray[np.int32]:
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


def _compute_value_lengths(column: pa.BinaryArray) -> IntArray:
    """Return the length of each value; -1 for null."""
    if not len(column):
        return np.empty(0, np.int64)
    lengths = np.diff(_get_value_bounds(column)).astype(np.int64)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return lengths


def _data(column: pa.BinaryArray) -> pa.Buffer:
    if not len(column):
        return pa.py_buffer(b"")
    bounds = _get_value_bounds(column)
    data = column.buffers()[2]
    return pa.py_buffer(b"") if data is None else data.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
