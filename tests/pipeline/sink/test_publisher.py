"""Tests of the vectorised partitioner, and of publishing rows as records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.client.cluster import ClusterClient
from chronik.client.partitioner import choose_partition, murmur2
from chronik.pipeline.errors import SchemaError
from chronik.pipeline.records.columns import HEADERS_TYPE
from chronik.pipeline.sink.partitioner import KEY_BYTES_MAX, compute_murmur2_hashes, compute_partitions_for_keys
from chronik.pipeline.sink.publisher import Publisher, PublishSettings
from chronik.protocol.compression import Codec
from chronik.protocol.errors import KafkaError
from chronik.testing import Broker

KEYS = st.lists(st.one_of(st.binary(max_size=20), st.binary(min_size=60, max_size=80)), max_size=30)


@settings(deadline=None)
@given(KEYS, st.integers(0, 3))
def test_vectorised_murmur2_equals_scalar_hash(keys: list[bytes], slice_offset: int) -> None:
    column = pa.array([*([b"skipped"] * slice_offset), *keys], pa.binary()).slice(slice_offset)
    assert compute_murmur2_hashes(column).tolist() == [murmur2(key) for key in keys]


@pytest.mark.parametrize("size", [KEY_BYTES_MAX - 1, KEY_BYTES_MAX, KEY_BYTES_MAX + 1, KEY_BYTES_MAX + 5])
def test_long_keys_are_hashed_correctly(size: int) -> None:
    keys = [bytes(range(256)) * 5, b"short", b"x" * size]
    assert compute_murmur2_hashes(pa.array(keys, pa.binary())).tolist() == [murmur2(key) for key in keys]


def test_key_partitions_match_kafka_clients() -> None:
    keys = [b"key%d" % number for number in range(200)]
    chosen = compute_partitions_for_keys(pa.array(keys, pa.binary()), 7).tolist()
    assert chosen == [choose_partition(key, 7) for key in keys]
    assert set(chosen) == set(range(7))


@pytest.fixture
def cluster(chronik_broker: Broker) -> Iterator[ClusterClient]:
    with chronik_broker.cluster() as cluster:
        yield cluster


def build_rows(**columns: Any) -> pa.RecordBatch:
    types = {"partition": pa.int32(), "headers": HEADERS_TYPE}
    arrays = {name: pa.array(values, types.get(name)) for name, values in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


@pytest.mark.chronik_topic(partitions=5)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_published_rows_become_records(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str, codec: Codec
) -> None:
    publisher = Publisher(cluster, PublishSettings("unused", chronik_topic, codec))
    headers = [None, [{"key": "a", "value": b"1"}, {"key": "b", "value": None}], []]
    written = publisher.publish(build_rows(key=["x", None, "y"], value=[b"1", b"2", None], headers=headers))
    assert written == 3
    found = {record.key: record for record in chronik_broker.records(chronik_topic)}
    assert found[b"x"].partition == choose_partition(b"x", 5)
    assert found[b"y"].partition == choose_partition(b"y", 5)
    assert [found[key].value for key in (b"x", None, b"y")] == [b"1", b"2", None]
    assert found[None].headers == (("a", b"1"), ("b", None))
    assert found[b"x"].headers == found[b"y"].headers == ()


@pytest.mark.chronik_topic(partitions=3)
def test_rows_without_key_rotate_partitions_by_batch(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    publisher = Publisher(cluster, PublishSettings("unused", chronik_topic))
    for number in range(6):
        publisher.publish(build_rows(value=[b"%d" % number] * 4))
    partitions = {record.value: record.partition for record in chronik_broker.records(chronik_topic)}
    assert len(chronik_broker.records(chronik_topic)) == 24
    assert sorted(partitions.values()) == [0, 0, 1, 1, 2, 2]


@pytest.mark.chronik_topic(partitions=3)
def test_partition_column_selects_partition(chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str) -> None:
    publisher = Publisher(cluster, PublishSettings("unused", chronik_topic))
    hashed = choose_partition(b"k", 3)
    other_partition = (hashed + 1) % 3
    publisher.publish(build_rows(key=[b"k", b"k"], value=[b"selected", b"hashed"], partition=[other_partition, None]))
    found = {record.value: record.partition for record in chronik_broker.records(chronik_topic)}
    assert found == {b"selected": other_partition, b"hashed": hashed}
    with pytest.raises(KafkaError, match="no partition 9"):
        publisher.publish(build_rows(value=[b"v"], partition=[9]))


def test_timestamp_column_sets_record_timestamp(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    Publisher(cluster, PublishSettings("unused", chronik_topic)).publish(
        build_rows(value=[b"1", b"2"], timestamp_ms=[77, 5])
    )
    assert [record.timestamp for record in chronik_broker.records(chronik_topic)] == [77, 5]


def test_topic_column_selects_topic_without_option(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    other = f"{chronik_topic}-other"
    publisher = Publisher(cluster, PublishSettings("unused"))
    publisher.publish(build_rows(value=[b"1", b"2", b"3"], topic=[chronik_topic, other, chronik_topic]))
    assert [record.value for record in chronik_broker.records(chronik_topic)] == [b"1", b"3"]
    assert [record.value for record in chronik_broker.records(other)] == [b"2"]
    with pytest.raises(SchemaError, match="a row has no topic"):
        publisher.publish(build_rows(value=[b"1", b"2"], topic=[chronik_topic, None]))


def test_retried_produce_request_is_written_once(
    chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    chronik_broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2)
    Publisher(cluster, PublishSettings("unused", chronik_topic)).publish(build_rows(value=[b"1", b"2"]))
    assert [record.value for record in chronik_broker.records(chronik_topic)] == [b"1", b"2"]
