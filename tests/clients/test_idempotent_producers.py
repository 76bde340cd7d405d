"""Idempotent producers of every client: thousands of records, each stored once and in order."""

from __future__ import annotations

import pytest

from .client_catalog import CLIENTS
from .client_process import ClientPool, unique_name
from .drivers.wire import Record

RECORDS = 3000
PARTITIONS = 3
VALUE_BYTES = 500  # large enough for many batches, several of them in flight
IDEMPOTENT_CLIENTS = [name for name in CLIENTS if name != "kcat" and not name.startswith("kafka-python-0.10")]


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("name", IDEMPOTENT_CLIENTS)
def test_idempotent_producer_stores_every_record_once_and_in_order(clients: ClientPool, name: str, codec: str) -> None:
    producer, reader = clients.get(name), clients.get("confluent")
    assert producer.capabilities["idempotence"]
    topic = clients.create_topic(unique_name("idempotent"), PARTITIONS)
    sent = [
        Record(str(number).encode(), str(number).encode().ljust(VALUE_BYTES), partition=number % PARTITIONS)
        for number in range(RECORDS)
    ]
    producer.produce(topic, sent, codec, idempotent=True)
    ends = [reader.admin("list_offsets", topic=topic, partition=p, spec="latest")["offset"] for p in range(PARTITIONS)]
    assert ends == [RECORDS // PARTITIONS] * PARTITIONS
    received, problem = reader.consume({topic: RECORDS}, None)
    assert problem is None
    for partition in range(PARTITIONS):
        written = [(record.key, record.value) for record in sent if record.partition == partition]
        read = [(record.key, record.value) for record in received if record.partition == partition]
        assert read == written


@pytest.mark.parametrize("name", IDEMPOTENT_CLIENTS)
def test_successive_idempotent_producers_append_to_same_partition(clients: ClientPool, name: str) -> None:
    """Each run has a new producer id, whose sequence starts at 0 in a partition that others have written to."""
    producer = clients.get(name)
    topic = clients.create_topic(unique_name("successive"), 1)
    for value in (b"first", b"second", b"third"):
        producer.produce(topic, [Record(b"key", value, partition=0)], idempotent=True)
    received, problem = clients.get("confluent").consume({topic: 3}, None)
    assert problem is None
    assert [record.value for record in received] == [b"first", b"second", b"third"]
