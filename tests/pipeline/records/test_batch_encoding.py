"""Tests that compare the vectorised encoder with `chronik.protocol.records`, before compression."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.client.producer import BATCH_BYTES_MAX
from chronik.pipeline.errors import SchemaError
from chronik.pipeline.records.columns import HEADERS_TYPE
from chronik.pipeline.records.encoder import encode_headers, encode_record_batch, split_into_batches
from chronik.pipeline.records.varints import encode_varints
from chronik.pipeline.sink.publisher import Publisher, PublishSettings
from chronik.protocol.batch import BatchHeader
from chronik.protocol.compression import Codec
from chronik.protocol.records import Record, decompress_batch, encode_batch
from chronik.protocol.varint import encode_varint
from chronik.testing import Broker

FIELDS = st.one_of(st.none(), st.binary(max_size=12), st.binary(min_size=60, max_size=70), st.just(b"x" * 9000))
HEADERS = st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.binary(max_size=70))), max_size=3)
TIMES = st.one_of(st.integers(1000, 1300), st.integers(-(2**63), 2**63 - 1))
ROWS = st.lists(st.tuples(FIELDS, FIELDS, TIMES, st.one_of(st.none(), HEADERS)), min_size=1, max_size=90)


def header_column(headers: list[Any]) -> pa.ListArray:
    pairs = [None if each is None else [{"key": name, "value": value} for name, value in each] for each in headers]
    return pa.array(pairs, HEADERS_TYPE)


def decompress(batch: bytes) -> tuple[BatchHeader, bytes]:
    """Return header and body without compression, because compressed bytes depend on the input chunks."""
    header, body = decompress_batch(batch)
    return header._replace(batch_length=0, crc=0), bytes(body)


@settings(deadline=None, max_examples=60)
@given(ROWS, st.integers(0, 2), st.sampled_from(Codec), st.booleans(), st.booleans())
def test_encoded_batches_equal_protocol_encoder(
    rows: list[Any], skipped: int, codec: Codec, with_headers: bool, transactional: bool
) -> None:
    """Includes columns with an offset into their buffers, like slices."""
    keys, values, times, headers = (list(column) for column in zip(*[rows[0]] * skipped, *rows, strict=True))
    encoded = encode_record_batch(
        pa.array(keys, pa.binary())[skipped:],
        pa.array(values, pa.binary())[skipped:],
        np.array(times[skipped:], np.int64),
        headers=encode_headers(header_column(headers)[skipped:]) if with_headers else None,
        codec=codec,
        producer_id=7,
        producer_epoch=3,
        base_sequence=99,
        transactional=transactional,
    )
    records = [
        Record(offset, time, key, value, tuple(headers or ()) if with_headers else ())
        for offset, (key, value, time, headers) in enumerate(rows)
    ]
    expected = encode_batch(
        records, codec=codec, producer_id=7, producer_epoch=3, base_sequence=99, transactional=transactional
    )
    assert decompress(encoded) == decompress(expected)
    assert codec is not Codec.NONE or encoded == expected


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_encoded_varints_equal_protocol_encoder(values: list[int]) -> None:
    assert encode_varints(np.array(values, np.int64)).to_pylist() == [encode_varint(value) for value in values]


def test_header_without_name_is_rejected() -> None:
    for wrong in ([{"key": None, "value": b"v"}], [None]):
        with pytest.raises(SchemaError, match="a header has no name"):
            encode_headers(pa.array([wrong], HEADERS_TYPE))


@given(st.lists(st.sampled_from([0, 1, 1000, BATCH_BYTES_MAX // 3, BATCH_BYTES_MAX, 2 * BATCH_BYTES_MAX]), max_size=9))
def test_batch_slices_fill_batches_with_at_least_one_row(sizes: list[int]) -> None:
    keys, values = pa.nulls(len(sizes), pa.binary()), pa.array([bytes(size) for size in sizes], pa.binary())
    slices = list(split_into_batches(keys, values, None))
    assert [number for each in slices for number in range(each.start, each.stop)] == list(range(len(sizes)))
    for each in slices:
        assert each.stop - each.start == 1 or sum(sizes[each]) <= BATCH_BYTES_MAX
    for before, after in pairwise(slices):
        assert sum(sizes[before]) + sizes[after.start] > BATCH_BYTES_MAX // 2


@pytest.mark.chronik_topic(partitions=2)
def test_batches_of_a_partition_keep_their_order(chronik_broker: Broker, chronik_topic: str) -> None:
    values = [b"%06d" % number * 40 for number in range(9000)]
    rows = pa.RecordBatch.from_pydict(
        {"value": pa.array(values, pa.binary()), "partition": pa.array([0, 1, 0] * 3000, pa.int32())}
    )
    with chronik_broker.cluster() as cluster:
        publisher = Publisher(cluster, PublishSettings("unused", chronik_topic))
        assert publisher.publish(rows) + publisher.publish(rows) == 18_000
    found: dict[int, list[bytes | None]] = {0: [], 1: []}
    for record in chronik_broker.records(chronik_topic):
        found[record.partition].append(record.value)
    assert found[1] == values[1::3] * 2
    assert found[0] == [value for number, value in enumerate(values) if number % 3 != 1] * 2
    produced = [each for each in chronik_broker.last_requests(1000) if each.api == "Produce"]
    assert len(produced) > 4
