from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronik.bench.librdkafka import LibrdkafkaProducer
from chronik.client.connection import BrokerConnection
from chronik.client.errors import BrokerUnreachable
from chronik.config import Address
from chronik.protocol.batch import validate_produced_batches
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

ROOT = Path(__file__).parents[2]
START_SECONDS_MAX = 30.0
BENCH_SECONDS_MAX = 300.0


@pytest.fixture
def minimal_server(tmp_path: Path) -> Iterator[Address]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = Address(*probe.getsockname())
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.minimal_server", str(tmp_path), str(address.port)], cwd=ROOT
    )
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                BrokerConnection(address).close()
                break
            except BrokerUnreachable:
                assert process.poll() is None, "the minimal server exited"
                assert time.monotonic() < deadline, "the minimal server does not respond"
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_SECONDS_MAX) == 0


def produce(address: Address, topic: str, records: int) -> None:
    config = {"bootstrap.servers": str(address), "acks": "all", "linger.ms": "5"}
    producer = LibrdkafkaProducer(config, topic, b"v" * 100, records)
    try:
        assert producer.enqueue(records) == records
        delivered = 0
        while delivered < records:
            report = producer.poll(10_000)
            assert report is not None, "not acknowledged"
            delivered += report.records
    finally:
        producer.close()


@pytest.mark.slow
def test_minimal_server_stores_acknowledged_batches(minimal_server: Address, tmp_path: Path) -> None:
    produce(minimal_server, "kept", 30_000)
    headers = validate_produced_batches(memoryview((tmp_path / "kept").read_bytes()))
    assert sum(header.record_count for header in headers) == 30_000
    assert len(headers) > 1


@pytest.mark.slow
def test_minimal_server_rejects_batch_with_wrong_checksum(minimal_server: Address, tmp_path: Path) -> None:
    produce(minimal_server, "source", 1)
    batch = bytearray((tmp_path / "source").read_bytes())
    connection = BrokerConnection(minimal_server)
    try:
        assert send(connection, bytes(batch)) == (ErrorCode.NONE, 0)
        assert send(connection, bytes(batch)) == (ErrorCode.NONE, 1)
        batch[-1] ^= 1
        assert send(connection, bytes(batch)) == (ErrorCode.CORRUPT_MESSAGE, -1)
    finally:
        connection.close()
    batch[-1] ^= 1
    assert (tmp_path / "sink").read_bytes() == bytes(batch) * 2


def send(connection: BrokerConnection, batch: bytes) -> tuple[int, int]:
    partition = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="sink", partition_data=[partition])]
    )
    result_partition = connection.request(request, ProduceResponse).responses[0].partition_responses[0]
    return result_partition.error_code, result_partition.base_offset


@pytest.mark.slow
def test_make_bench_prints_tables_and_writes_json(tmp_path: Path) -> None:
    options = {"rounds": 1, "megabytes": 20, "trips": 20, "topics": 10, "starts": 2, "idle-seconds": 0.2}
    completed = subprocess.run(
        [sys.executable, "-m", "bench", *(f"--{name}={options[name]}" for name in options), f"--folder={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BENCH_SECONDS_MAX,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    for heading in ("### Produce", "### Consume", "### Round trip", "### Node", "### Targets"):
        assert heading in completed.stdout
    figures = json.loads((tmp_path / "bench.json").read_text())
    assert len(figures["produce"]) == 6
    for measured in figures["produce"]:
        (result,) = measured["rounds"]
        assert result["records"] * result["record_bytes"] == 20_000_000
        assert result["broker_cpu_s_per_million"] is not None
    assert len(figures["targets"]) == 10
    assert len(figures["idle"]["start_ms"]) == 2
    assert sorted(os.listdir(tmp_path)) == ["bench.json", "bytecode"]  # the servers' data was deleted
