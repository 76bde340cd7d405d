"""Sample requests: clients get rows of a table from its driver, while the driver keeps landing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.consumer import read_all
from chronik.client.errors import ApiNotSupported
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.pipeline.journal import sample_responder
from chronik.pipeline.journal.journal_client import JOURNAL_PARTITION, ensure_journal_topic
from chronik.pipeline.journal.sample_responder import SampleReader, SampleResponder
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.sample_table import SampleTableRequest, SampleTableResponse
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory

SECONDS_MAX = 60.0
PIPELINE = "chronik-pipeline-shown"


def request_sample(
    cluster: ClusterClient, topic: str = "orders", pipeline: str = PIPELINE, seconds: float = SECONDS_MAX
) -> SampleTableResponse:
    request = SampleTableRequest(pipeline=pipeline, topic=topic, rows=3, timeout_ms=int(seconds * 1000))
    return cluster.leader(JOURNAL_PARTITION).request(request, SampleTableResponse, wait_s=seconds)


@contextmanager
def run_responder(bootstrap: str, sample: SampleReader) -> Iterator[SampleResponder]:
    responder = SampleResponder(bootstrap, PIPELINE, sample)
    try:
        yield responder
    finally:
        responder.close()
        responder._thread.join(SECONDS_MAX)
        assert not responder._thread.is_alive()


def wait_until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not done():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


def test_responder_serves_sample_requests_in_order(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    calls = list[tuple[str, int]]()

    def sample(topic: str, rows: int) -> bytes:
        calls.append((topic, rows))
        return topic.encode()

    with broker.cluster() as cluster, run_responder(broker.bootstrap, sample):
        ensure_journal_topic(cluster)  # after the responder has started, which retries
        for topic in ("orders", "clicks", "orders"):
            assert bytes(request_sample(cluster, topic).sample) == topic.encode()
        assert calls == [("orders", 3), ("clicks", 3), ("orders", 3)]
        unanswered = request_sample(cluster, pipeline="another", seconds=0.1)
        assert unanswered.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert (unanswered.error_message or "").startswith("the driver of pipeline another did not ")
        assert len(calls) == 3


def test_failed_sample_returns_error_and_next_request_succeeds(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    results: Iterator[RuntimeError | bytes] = iter([RuntimeError("a bug"), b"x" * 70_000, b"rows"])

    def sample(topic: str, rows: int) -> bytes:
        result = next(results)
        if isinstance(result, RuntimeError):
            raise result
        return result

    with broker.cluster() as cluster, run_responder(broker.bootstrap, sample):
        ensure_journal_topic(cluster)
        assert bytes(request_sample(cluster).sample) == b'{"error": "the driver could not read the table; see its log"}'
        assert request_sample(cluster).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert bytes(request_sample(cluster).sample) == b"rows"


def test_result_of_timed_out_request_is_discarded(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    may_continue, started = threading.Event(), threading.Event()

    def sample(topic: str, rows: int) -> bytes:
        started.set()
        assert may_continue.wait(SECONDS_MAX)
        return topic.encode()

    with broker.cluster() as cluster, run_responder(broker.bootstrap, sample):
        ensure_journal_topic(cluster)
        while not started.is_set():
            late = request_sample(cluster, "slow", seconds=0.2)
            assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert (late.error_message or "").startswith(f"the driver of pipeline {PIPELINE} did not ")
        may_continue.set()
        assert bytes(request_sample(cluster, "orders").sample) == b"orders"


def test_responder_polls_again_after_broker_errors(
    chronik_broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_responder, "RETRY_DELAY_SECONDS_MAX", 0.5)
    broker = chronik_broker_factory()
    with broker.cluster() as cluster:
        ensure_journal_topic(cluster)
        with run_responder(broker.bootstrap, lambda topic, rows: b"rows"):
            assert bytes(request_sample(cluster).sample) == b"rows"
            broker.fail("AnswerSamples", "NOT_LEADER_OR_FOLLOWER", times=3)
            assert bytes(request_sample(cluster).sample) == b"rows"


def test_responder_stops_if_broker_does_not_support_samples(
    chronik_broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_not_supported(*_: object) -> None:
        raise ApiNotSupported("the broker supports no version of AnswerSamples")

    broker = chronik_broker_factory()
    monkeypatch.setattr(SampleResponder, "_poll", raise_not_supported)
    responder = SampleResponder(broker.bootstrap, PIPELINE, lambda topic, rows: b"rows")
    wait_until(lambda: not responder._thread.is_alive(), "the responder stops")


def test_sample_requests_write_no_records(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    with broker.cluster() as cluster, run_responder(broker.bootstrap, lambda topic, rows: b"secret"):
        ensure_journal_topic(cluster)
        assert bytes(request_sample(cluster).sample) == b"secret"
        names = {topic.name for topic in cluster.metadata(None).topics}
        assert names == {PIPELINES_TOPIC}
        assert read_all(cluster, PIPELINES_TOPIC) == []


@pytest.mark.slow
def test_broker_shutdown_does_not_wait_for_pending_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker holds the driver's poll for as long as requested, here half a minute."""
    monkeypatch.setattr(sample_responder, "POLL_WAIT_SECONDS", 30.0)
    with Broker() as broker:
        with broker.cluster() as cluster:
            ensure_journal_topic(cluster)
            responder = SampleResponder(broker.bootstrap, PIPELINE, lambda topic, rows: b"rows")
            assert bytes(request_sample(cluster).sample) == b"rows"
        started = time.monotonic()
    assert time.monotonic() - started < 10.0
    responder.close()
