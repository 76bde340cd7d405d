"""Damage on a stopped broker's disk: torn tails are truncated, indexes rebuilt, and a bit flip affects one batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronik.protocol.batch import LENGTH_END, iter_batches
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from chronik.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from chronik.protocol.records import Record, encode_batch, iter_records
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.raw import RawClient

BATCHES = 20


@pytest.fixture
def stopped(chronik_broker_factory: BrokerFactory) -> Broker:
    """Return a broker with BATCHES batches of one record each, which was killed."""
    broker = chronik_broker_factory()
    broker.create_topic("topic")
    with RawClient(broker.bootstrap) as client:
        for number in range(BATCHES):
            assert produce(client, number) == number
    broker.kill()
    return broker


def produce(client: RawClient, number: int) -> int:
    batch = encode_batch([Record(0, 1_700_000_000_000, b"key", b"value %d" % number)])
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name="topic", partition_data=[PartitionProduceData(index=0, records=batch)])],
    )
    answer = client.request(request, 9, ProduceResponse).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NONE
    return answer.base_offset


def fetch(client: RawClient, offset: int) -> PartitionData:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(topics=[FetchTopic(topic="topic", partitions=[partition])])
    return client.request(request, 11, FetchResponse).responses[0].partitions[0]


def values(data: PartitionData) -> list[bytes | None]:
    assert isinstance(data.records, memoryview)
    return [record.value for record in iter_records(data.records)]


def only_file(broker: Broker, suffix: str) -> Path:
    (path,) = broker.data_dir.glob(f"topics/*/0/*{suffix}")
    return path


def batches_of(path: Path) -> bytes:
    """Return the file up to its last batch: a killed broker leaves preallocated zeros after it."""
    data, end = path.read_bytes(), 0
    while length := int.from_bytes(data[end + LENGTH_END - 4 : end + LENGTH_END], "big"):
        end += LENGTH_END + length
    return data[:end]


def all_values(client: RawClient) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < BATCHES:
        data = fetch(client, len(found))
        assert data.error_code == ErrorCode.NONE
        found += values(data)
    return found


EVERYTHING = [b"value %d" % number for number in range(BATCHES)]


def test_torn_tail_above_synced_offset_is_truncated(stopped: Broker) -> None:
    path = only_file(stopped, ".log")
    batches = batches_of(path)
    torn = encode_batch([Record(BATCHES, 1_700_000_000_000, b"key", b"never acknowledged" * 10)])[:-7]
    path.write_bytes(batches + torn)
    stopped.start()
    with RawClient(stopped.bootstrap) as client:
        assert all_values(client) == EVERYTHING
        assert path.read_bytes() == batches
        assert produce(client, BATCHES) == BATCHES


def test_deleted_index_is_rebuilt(stopped: Broker) -> None:
    for path in stopped.data_dir.glob("topics/*/0/*.index"):
        path.unlink()
    stopped.start()
    with RawClient(stopped.bootstrap) as client:
        assert all_values(client) == EVERYTHING
        assert values(fetch(client, BATCHES - 1)) == EVERYTHING[-1:]


@pytest.mark.parametrize("damaged", [0, 7, BATCHES - 1])
@pytest.mark.parametrize("byte_in_batch", [3, 9, 14, 16, 18, 25, 70], ids="byte {}".format)
def test_bit_flip_below_synced_offset_damages_one_batch_without_truncation(
    stopped: Broker, damaged: int, byte_in_batch: int
) -> None:
    path = only_file(stopped, ".log")
    data = bytearray(path.read_bytes())
    batches_end = len(batches_of(path))
    positions = [position for position, _ in iter_batches(data[:batches_end])]
    data[positions[damaged] + byte_in_batch] ^= 0x40
    path.write_bytes(data)
    stopped.start()
    with RawClient(stopped.bootstrap) as client:
        broken = fetch(client, damaged)
        assert broken.error_code == ErrorCode.CORRUPT_MESSAGE
        assert broken.high_watermark in {-1, BATCHES}
        for offset in range(BATCHES):
            if offset != damaged:
                answer = fetch(client, offset)
                assert answer.error_code == ErrorCode.NONE, offset
                assert values(answer)[0] == EVERYTHING[offset]
        assert path.read_bytes()[:batches_end] == data[:batches_end]
        assert produce(client, BATCHES) == BATCHES
        assert values(fetch(client, BATCHES)) == [b"value %d" % BATCHES]
