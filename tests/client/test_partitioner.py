from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from chronik.client.partitioner import choose_partition, murmur2


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_matches_java_client(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFF_FFFF


@given(st.binary(max_size=100))
def test_murmur2_matches_kafka_python(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFF_FFFF


@given(st.binary(max_size=20), st.integers(1, 1000))
def test_choose_partition_is_within_partition_count(key: bytes, count: int) -> None:
    assert 0 <= choose_partition(key, count) < count
