from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from chronik.bench import acks
from chronik.bench.errors import BenchmarkError
from chronik.bench.main import main
from chronik.client.admin import list_topics
from chronik.protocol.errors import KafkaError
from chronik.testing import Broker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bench_broker() -> Iterator[Broker]:
    with Broker(flush="os") as broker:
        yield broker


@pytest.fixture(autouse=True)
def _reset_faults(bench_broker: Broker) -> Iterator[None]:
    yield
    bench_broker.heal()


@pytest.mark.parametrize("acks_setting", ["all", "1"])
def test_acks_measures_latency_of_every_record(
    capsys: pytest.CaptureFixture[str], bench_broker: Broker, acks_setting: str
) -> None:
    arguments = ["--records", "50", "--size", "200", "--acks", acks_setting, "--json"]
    assert main(["acks", "-b", bench_broker.bootstrap, *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["records"], result["record_bytes"], result["acks"]) == (50, 200, acks_setting)
    assert 0 < result["latency"]["p50_ms"] <= result["latency"]["p99_ms"] <= result["latency"]["max_ms"]
    with bench_broker.cluster() as cluster:
        assert not [topic.name for topic in list_topics(cluster) if "acks" in (topic.name or "")]


def test_acks_sends_one_produce_request_per_record(bench_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks, "WARM_UP_RECORDS", 1)
    bench_broker.create_topic("singles")
    acks.measure(bench_broker.bootstrap, "singles", 20)
    assert [request.api for request in bench_broker.last_requests(21)] == ["Produce"] * 21
    assert len(bench_broker.records("singles")) == 21


def test_acks_fails_when_broker_rejects_a_record(bench_broker: Broker) -> None:
    bench_broker.create_topic("refused")
    bench_broker.fail("Produce", "INVALID_RECORD", times=None)
    with pytest.raises(BenchmarkError, match="a record was not acknowledged"):
        acks.measure(bench_broker.bootstrap, "refused", 1)


def test_replication_factor_above_broker_count_is_rejected(bench_broker: Broker) -> None:
    for measurement in (["acks"], ["gaps"], ["produce", "--topic", "copies", "--records", "1"]):
        with pytest.raises(KafkaError, match="replica"):
            main([*measurement, "-b", bench_broker.bootstrap, "--replication-factor", "3"])
