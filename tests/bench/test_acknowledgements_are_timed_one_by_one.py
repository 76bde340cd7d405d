from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from chronik.bench import acks
from chronik.bench.errors import BenchFailed
from chronik.bench.main import main
from chronik.client.admin import list_topics
from chronik.protocol.errors import KafkaError
from chronik.testing import Broker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def measured() -> Iterator[Broker]:
    with Broker(flush="os") as broker:
        yield broker


@pytest.fixture(autouse=True)
def _healed(measured: Broker) -> Iterator[None]:
    yield
    measured.heal()


@pytest.mark.parametrize("wanted", ["all", "1"])
def test_every_record_is_waited_for(capsys: pytest.CaptureFixture[str], measured: Broker, wanted: str) -> None:
    words = ["--records", "50", "--size", "200", "--acks", wanted, "--json"]
    assert main(["acks", "-b", measured.bootstrap, *words]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["records"], result["record_bytes"], result["acks"]) == (50, 200, wanted)
    assert 0 < result["latency"]["p50_ms"] <= result["latency"]["p99_ms"] <= result["latency"]["max_ms"]
    with measured.cluster() as cluster:
        assert not [topic.name for topic in list_topics(cluster) if "acks" in (topic.name or "")]


def test_each_record_is_a_request_of_its_own(measured: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks, "WARM_UP_RECORDS", 1)
    measured.create_topic("singles")
    acks.measure(measured.bootstrap, "singles", 20)
    assert [request.api for request in measured.last_requests(21)] == ["Produce"] * 21
    assert len(measured.records("singles")) == 21


def test_a_record_that_is_refused_ends_the_measurement(measured: Broker) -> None:
    measured.create_topic("refused")
    measured.fail("Produce", "INVALID_RECORD", times=None)
    with pytest.raises(BenchFailed, match="a record was not acknowledged"):
        acks.measure(measured.bootstrap, "refused", 1)


def test_more_replicas_than_brokers_are_refused(measured: Broker) -> None:
    for measurement in (["acks"], ["gaps"], ["produce", "--topic", "copies", "--records", "1"]):
        with pytest.raises(KafkaError, match="replica"):
            main([*measurement, "-b", measured.bootstrap, "--replication-factor", "3"])
