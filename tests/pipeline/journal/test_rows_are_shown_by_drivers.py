"""Who asks for rows of a table gets them from its driver, which lands on all the while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from chronik.client.cluster import Cluster
from chronik.client.consumer import read_all
from chronik.client.errors import ApiNotSupported
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.pipeline.journal import answering
from chronik.pipeline.journal.answering import Sample, SampleAnswerer
from chronik.pipeline.journal.journal import PARTITION, ensure_topic
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.sample_table import SampleTableRequest, SampleTableResponse
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory

SECONDS_MAX = 60.0
PIPELINE = "chronik-pipeline-shown"


def ask(
    cluster: Cluster, topic: str = "orders", pipeline: str = PIPELINE, seconds: float = SECONDS_MAX
) -> SampleTableResponse:
    request = SampleTableRequest(pipeline=pipeline, topic=topic, rows=3, timeout_ms=int(seconds * 1000))
    return cluster.leader(PARTITION).request(request, SampleTableResponse, wait_s=seconds)


@contextmanager
def answering_by(bootstrap: str, sample: Sample) -> Iterator[SampleAnswerer]:
    answerer = SampleAnswerer(bootstrap, PIPELINE, sample)
    try:
        yield answerer
    finally:
        answerer.close()
        answerer._thread.join(SECONDS_MAX)
        assert not answerer._thread.is_alive()


def wait_until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not done():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


def test_a_driver_answers_one_question_after_the_other(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    asked = list[tuple[str, int]]()

    def sample(topic: str, rows: int) -> bytes:
        asked.append((topic, rows))
        return topic.encode()

    with broker.cluster() as cluster, answering_by(broker.bootstrap, sample):
        ensure_topic(cluster)  # after the driver has come: it comes again
        for topic in ("orders", "clicks", "orders"):
            assert bytes(ask(cluster, topic).sample) == topic.encode()
        assert asked == [("orders", 3), ("clicks", 3), ("orders", 3)]
        nobody = ask(cluster, pipeline="another", seconds=0.1)
        assert nobody.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert nobody.error_message == "the driver of pipeline another did not come for the question within 0.1 s"
        assert len(asked) == 3


def test_what_goes_wrong_is_told_and_the_next_question_is_answered(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    answers: Iterator[RuntimeError | bytes] = iter([RuntimeError("a bug"), b"x" * 70_000, b"rows"])

    def sample(topic: str, rows: int) -> bytes:
        answer = next(answers)
        if isinstance(answer, RuntimeError):
            raise answer
        return answer

    with broker.cluster() as cluster, answering_by(broker.bootstrap, sample):
        ensure_topic(cluster)
        assert bytes(ask(cluster).sample) == b'{"error": "its driver could not read the table; its log says why"}'
        assert ask(cluster).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert bytes(ask(cluster).sample) == b"rows"


def test_a_question_that_was_given_up_is_answered_to_nobody(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    go_on, began = threading.Event(), threading.Event()

    def sample(topic: str, rows: int) -> bytes:
        began.set()
        assert go_on.wait(SECONDS_MAX)
        return topic.encode()

    with broker.cluster() as cluster, answering_by(broker.bootstrap, sample):
        ensure_topic(cluster)
        while not began.is_set():
            late = ask(cluster, "slow", seconds=0.2)
            assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert late.error_message == f"the driver of pipeline {PIPELINE} did not answer within 0.2 s"
        go_on.set()
        assert bytes(ask(cluster, "orders").sample) == b"orders"


def test_a_driver_comes_again_after_brokers_were_away(
    chronik_broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "PAUSE_SECONDS_MAX", 0.5)
    broker = chronik_broker_factory()
    with broker.cluster() as cluster:
        ensure_topic(cluster)
        with answering_by(broker.bootstrap, lambda topic, rows: b"rows"):
            assert bytes(ask(cluster).sample) == b"rows"
            broker.fail("AnswerSamples", "NOT_LEADER_OR_FOLLOWER", times=3)
            assert bytes(ask(cluster).sample) == b"rows"


def test_a_driver_of_brokers_that_are_not_ours_does_not_ask_again(
    chronik_broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ApiNotSupported("it speaks no version of AnswerSamples that we speak")

    broker = chronik_broker_factory()
    monkeypatch.setattr(SampleAnswerer, "_exchange", refuse)
    answerer = SampleAnswerer(broker.bootstrap, PIPELINE, lambda topic, rows: b"rows")
    wait_until(lambda: not answerer._thread.is_alive(), "it gives up")


def test_nothing_of_it_is_written(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    with broker.cluster() as cluster, answering_by(broker.bootstrap, lambda topic, rows: b"secret"):
        ensure_topic(cluster)
        assert bytes(ask(cluster).sample) == b"secret"
        names = {topic.name for topic in cluster.metadata(None).topics}
        assert names == {PIPELINES_TOPIC}
        assert read_all(cluster, PIPELINES_TOPIC) == []


@pytest.mark.slow
def test_a_broker_that_stops_does_not_wait_for_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's request is kept for as long as it asks for, which is half a minute here."""
    monkeypatch.setattr(answering, "WAIT_SECONDS", 30.0)
    with Broker() as broker:
        with broker.cluster() as cluster:
            ensure_topic(cluster)
            answerer = SampleAnswerer(broker.bootstrap, PIPELINE, lambda topic, rows: b"rows")
            assert bytes(ask(cluster).sample) == b"rows"
        began = time.monotonic()
    assert time.monotonic() - began < 10.0
    answerer.close()
