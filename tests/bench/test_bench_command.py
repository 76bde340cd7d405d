from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from chronik.bench import librdkafka
from chronik.bench.errors import BenchmarkError, LibrdkafkaNotInstalled
from chronik.bench.main import main
from chronik.client.admin import list_topics
from chronik.client.errors import RequestTimedOut
from chronik.client.offsets import list_latest_offsets
from chronik.testing import Broker

pytestmark = pytest.mark.slow

RECORDS = 25_000


@pytest.fixture(scope="module")
def bench_broker() -> Iterator[Broker]:
    with Broker(flush="os") as broker:
        yield broker


def run_bench(capsys: pytest.CaptureFixture[str], broker: Broker, *arguments: str) -> Any:
    assert main([*arguments, "-b", broker.bootstrap, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def end_offsets(broker: Broker, topic: str) -> list[int]:
    with broker.cluster() as cluster:
        partitions = cluster.partitions(topic)
        return list(list_latest_offsets(cluster, partitions).values())


@pytest.mark.parametrize("acks", ["all", "1"])
def test_produce_reports_records_stored_by_broker(
    capsys: pytest.CaptureFixture[str], bench_broker: Broker, acks: str
) -> None:
    topic = f"acks-{acks}"
    arguments = ["--topic", topic, "--records", str(RECORDS), "--size", "50", "--acks", acks, "--partitions", "2"]
    result = run_bench(capsys, bench_broker, "produce", *arguments, "--pid", str(bench_broker.pid))
    assert result["records"] == RECORDS
    assert result["records_per_second"] == pytest.approx(RECORDS / result["seconds"])
    assert result["broker_cpu_s_per_million"] >= 0
    assert 0 < result["latency"]["p50_ms"] <= result["latency"]["p99_ms"] <= result["latency"]["max_ms"]
    offsets = end_offsets(bench_broker, topic)
    assert len(offsets) == 2
    assert sum(offsets) == RECORDS + 1  # including the record that opened the connection


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_produce_supports_every_compression_codec(
    capsys: pytest.CaptureFixture[str], bench_broker: Broker, codec: str
) -> None:
    run_bench(capsys, bench_broker, "produce", "--topic", codec, "--records", "2000", "--codec", codec)
    assert end_offsets(bench_broker, codec) == [2001]


def test_consume_reads_all_records_of_topic(capsys: pytest.CaptureFixture[str], bench_broker: Broker) -> None:
    run_bench(capsys, bench_broker, "produce", "--topic", "read", "--records", str(RECORDS), "--partitions", "3")
    result = run_bench(capsys, bench_broker, "consume", "--topic", "read", "--pid", str(bench_broker.pid))
    # The records of the first poll, before timing started, are not counted.
    assert RECORDS - 10_000 <= result["records"] <= RECORDS
    assert result["mb_per_second"] == pytest.approx(result["records_per_second"] * 100 / 1_000_000)


def test_consume_fails_on_empty_topic(bench_broker: Broker) -> None:
    bench_broker.create_topic("empty")
    with pytest.raises(BenchmarkError, match="topic empty is empty"):
        main(["consume", "-b", bench_broker.bootstrap, "--topic", "empty"])


def test_round_trip_reports_latency_percentiles(capsys: pytest.CaptureFixture[str], bench_broker: Broker) -> None:
    result = run_bench(capsys, bench_broker, "round-trip", "--records", "50")
    assert result["trips"] == 50
    latency = result["latency"]
    assert 0 < latency["p50_ms"] <= latency["p99_ms"] <= latency["p999_ms"] <= latency["max_ms"]
    assert 50 >= result["over_50_ms"] >= result["over_100_ms"] == (latency["max_ms"] > 100)
    assert result["beside_slow_syncs"] is None


def test_transactions_measures_each_transaction_size(capsys: pytest.CaptureFixture[str], bench_broker: Broker) -> None:
    results = run_bench(capsys, bench_broker, "transactions", "--records", "5", "500", "--transactions", "10")
    assert [result["records_per_transaction"] for result in results] == [5, 500]
    for result in results:
        assert result["transactions"] == 10
        assert result["records_per_second"] == pytest.approx(
            result["transactions_per_second"] * result["records_per_transaction"]
        )
        assert 0 < result["commit"]["p50_ms"] <= result["commit"]["p99_ms"] <= result["commit"]["max_ms"]


def test_topics_creates_topics_in_three_ways_and_deletes_them(
    capsys: pytest.CaptureFixture[str], bench_broker: Broker
) -> None:
    results = run_bench(capsys, bench_broker, "topics", "--topics", "120")
    assert [result["created_by"] for result in results] == ["one request", "10 threads", "100 threads"]
    assert all(result["topics"] == 120 and result["seconds"] > 0 for result in results)
    with bench_broker.cluster() as cluster:
        assert not [topic.name for topic in list_topics(cluster) if "topics" in (topic.name or "")]


def test_topics_honors_request_timeout(bench_broker: Broker) -> None:
    bench_broker.delay("CreateTopics", 30, times=1)
    started = time.monotonic()
    with pytest.raises(RequestTimedOut):
        main(["topics", "-b", bench_broker.bootstrap, "--topics", "1", "--timeout", "1"])
    assert time.monotonic() - started < 20


def test_metadata_reports_requests_per_second(capsys: pytest.CaptureFixture[str], bench_broker: Broker) -> None:
    result = run_bench(capsys, bench_broker, "metadata", "--topics", "20", "--requests", "200")
    assert (result["topics"], result["requests"]) == (20, 200)
    assert result["requests_per_second"] > 0


def test_bench_prints_table_without_json_option(capsys: pytest.CaptureFixture[str], bench_broker: Broker) -> None:
    assert main(["metadata", "-b", bench_broker.bootstrap, "--topics", "3", "--requests", "10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["topics", "3"]
    assert any(line.startswith("latency p99 ms") for line in lines)


def test_producer_fails_when_broker_is_unreachable() -> None:
    producer = librdkafka.LibrdkafkaProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, "t", b"x", 1)
    try:
        assert producer.enqueue(1) == 1
        with pytest.raises(BenchmarkError, match=r"brokers are down|Connect"):
            poll_forever(producer)
    finally:
        producer.close()


def poll_forever(producer: librdkafka.LibrdkafkaProducer) -> None:
    while True:
        producer.poll(30_000)


def test_unknown_librdkafka_setting_is_named_in_error() -> None:
    with pytest.raises(BenchmarkError, match=r"no\.such\.setting"):
        librdkafka.LibrdkafkaProducer({"no.such.setting": "1"}, "t", b"x", 1)


def test_missing_librdkafka_error_contains_install_hint(monkeypatch: pytest.MonkeyPatch, bench_broker: Broker) -> None:
    def missing() -> str:
        raise LibrdkafkaNotInstalled

    monkeypatch.setattr(librdkafka, "_path", missing)
    librdkafka.load_library.cache_clear()
    try:
        with pytest.raises(LibrdkafkaNotInstalled, match=r"pip install '\.\[bench\]'"):
            main(["produce", "-b", bench_broker.bootstrap, "--topic", "missing", "--records", "1"])
    finally:
        librdkafka.load_library.cache_clear()


def test_unknown_measurement_prints_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    assert "round-trip" in capsys.readouterr().err
    assert main(["--help"]) == 0
    assert "round-trip" in capsys.readouterr().out
