from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from chronik.bench import librdkafka
from chronik.bench.errors import BenchFailed, ClientMissing
from chronik.bench.main import main
from chronik.client.admin import list_topics
from chronik.client.errors import RequestTimedOut
from chronik.client.offsets import latest_offsets
from chronik.testing import Broker

pytestmark = pytest.mark.slow

RECORDS = 25_000


@pytest.fixture(scope="module")
def measured() -> Iterator[Broker]:
    with Broker(flush="os") as broker:
        yield broker


def bench(capsys: pytest.CaptureFixture[str], broker: Broker, *words: str) -> Any:
    assert main([*words, "-b", broker.bootstrap, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def written(broker: Broker, topic: str) -> list[int]:
    with broker.cluster() as cluster:
        partitions = cluster.partitions(topic)
        return list(latest_offsets(cluster, partitions).values())


@pytest.mark.parametrize("acks", ["all", "1"])
def test_produce_counts_what_the_broker_has(capsys: pytest.CaptureFixture[str], measured: Broker, acks: str) -> None:
    topic = f"acks-{acks}"
    words = ["--topic", topic, "--records", str(RECORDS), "--size", "50", "--acks", acks, "--partitions", "2"]
    result = bench(capsys, measured, "produce", *words, "--pid", str(measured.pid))
    assert result["records"] == RECORDS
    assert result["records_per_second"] == pytest.approx(RECORDS / result["seconds"])
    assert result["broker_cpu_s_per_million"] >= 0
    assert 0 < result["latency"]["p50_ms"] <= result["latency"]["p99_ms"] <= result["latency"]["max_ms"]
    offsets = written(measured, topic)
    assert len(offsets) == 2
    assert sum(offsets) == RECORDS + 1  # and the one that opened the connection


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_produce_compresses_when_asked(capsys: pytest.CaptureFixture[str], measured: Broker, codec: str) -> None:
    bench(capsys, measured, "produce", "--topic", codec, "--records", "2000", "--codec", codec)
    assert written(measured, codec) == [2001]


def test_consume_reads_all_that_is_there(capsys: pytest.CaptureFixture[str], measured: Broker) -> None:
    bench(capsys, measured, "produce", "--topic", "read", "--records", str(RECORDS), "--partitions", "3")
    result = bench(capsys, measured, "consume", "--topic", "read", "--pid", str(measured.pid))
    # What came first, before the clock was started, is not counted.
    assert RECORDS - 10_000 <= result["records"] <= RECORDS
    assert result["mb_per_second"] == pytest.approx(result["records_per_second"] * 100 / 1_000_000)


def test_consume_says_that_there_is_nothing_to_read(measured: Broker) -> None:
    measured.create_topic("empty")
    with pytest.raises(BenchFailed, match="topic empty holds no records"):
        main(["consume", "-b", measured.bootstrap, "--topic", "empty"])


def test_round_trips_are_measured_one_by_one(capsys: pytest.CaptureFixture[str], measured: Broker) -> None:
    result = bench(capsys, measured, "round-trip", "--records", "50")
    assert result["trips"] == 50
    latency = result["latency"]
    assert 0 < latency["p50_ms"] <= latency["p99_ms"] <= latency["p999_ms"] <= latency["max_ms"]
    assert 50 >= result["over_50_ms"] >= result["over_100_ms"] == (latency["max_ms"] > 100)
    assert result["beside_slow_syncs"] is None


def test_transactions_of_two_sizes_are_committed(capsys: pytest.CaptureFixture[str], measured: Broker) -> None:
    results = bench(capsys, measured, "transactions", "--records", "5", "500", "--transactions", "10")
    assert [result["records_per_transaction"] for result in results] == [5, 500]
    for result in results:
        assert result["transactions"] == 10
        assert result["records_per_second"] == pytest.approx(
            result["transactions_per_second"] * result["records_per_transaction"]
        )
        assert 0 < result["commit"]["p50_ms"] <= result["commit"]["p99_ms"] <= result["commit"]["max_ms"]


def test_topics_are_created_in_three_ways_and_removed(capsys: pytest.CaptureFixture[str], measured: Broker) -> None:
    results = bench(capsys, measured, "topics", "--topics", "120")
    assert [result["created_by"] for result in results] == ["one request", "10 threads", "100 threads"]
    assert all(result["topics"] == 120 and result["seconds"] > 0 for result in results)
    with measured.cluster() as cluster:
        assert not [topic.name for topic in list_topics(cluster) if "topics" in (topic.name or "")]


def test_topics_are_not_waited_for_longer_than_asked(measured: Broker) -> None:
    measured.delay("CreateTopics", 30, times=1)
    began = time.monotonic()
    with pytest.raises(RequestTimedOut):
        main(["topics", "-b", measured.bootstrap, "--topics", "1", "--timeout", "1"])
    assert time.monotonic() - began < 20


def test_metadata_is_asked_one_request_after_another(capsys: pytest.CaptureFixture[str], measured: Broker) -> None:
    result = bench(capsys, measured, "metadata", "--topics", "20", "--requests", "200")
    assert (result["topics"], result["requests"]) == (20, 200)
    assert result["requests_per_second"] > 0


def test_without_json_a_table_is_printed(capsys: pytest.CaptureFixture[str], measured: Broker) -> None:
    assert main(["metadata", "-b", measured.bootstrap, "--topics", "3", "--requests", "10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["topics", "3"]
    assert any(line.startswith("latency p99 ms") for line in lines)


def test_a_broker_that_is_not_there_ends_the_measurement() -> None:
    producer = librdkafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, "t", b"x", 1)
    try:
        assert producer.enqueue(1) == 1
        with pytest.raises(BenchFailed, match=r"brokers are down|Connect"):
            poll_for_ever(producer)
    finally:
        producer.close()


def poll_for_ever(producer: librdkafka.Producer) -> None:
    while True:
        producer.poll(30_000)


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(BenchFailed, match=r"no\.such\.setting"):
        librdkafka.Producer({"no.such.setting": "1"}, "t", b"x", 1)


def test_a_missing_client_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, measured: Broker) -> None:
    def missing() -> str:
        raise ClientMissing

    monkeypatch.setattr(librdkafka, "_path", missing)
    librdkafka.library.cache_clear()
    try:
        with pytest.raises(ClientMissing, match=r"pip install '\.\[bench\]'"):
            main(["produce", "-b", measured.bootstrap, "--topic", "missing", "--records", "1"])
    finally:
        librdkafka.library.cache_clear()


def test_an_unknown_measurement_shows_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    assert "round-trip" in capsys.readouterr().err
    assert main(["--help"]) == 0
    assert "round-trip" in capsys.readouterr().out
