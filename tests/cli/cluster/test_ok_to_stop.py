"""`chronik cluster ok-to-stop`: handling of errors, and of topics that are deleted concurrently."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from chronik.cli.cluster.ok_to_stop import wait_until_safe
from chronik.client.admin import NewTopic, create_topics, delete_topics, list_topics_with_configs
from chronik.client.cluster import ClusterClient as Client
from chronik.client.cluster_view import describe_partitions
from chronik.client.errors import BrokerUnreachable, LoginFailed
from chronik.planning.shutdown_check import ShutdownObstacle
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.testing import Broker
from chronik.testing.ports import ReservedPorts
from tests.cli.command_line import run_chronik

NO = (ShutdownObstacle("partitions", "a partition would have no leader", ()),)
WAIT_S = 30.0


def ask_results(*each: tuple[ShutdownObstacle, ...] | Exception) -> Callable[[], tuple[ShutdownObstacle, ...]]:
    left = iter(each)

    def ask() -> tuple[ShutdownObstacle, ...]:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        KafkaError(ErrorCode.NOT_CONTROLLER),
        BrokerUnreachable("no broker at …"),
    ],
    ids=str,
)
def test_wait_continues_after_retriable_error(error: Exception) -> None:
    messages: list[str] = []
    assert wait_until_safe(ask_results(error, NO, error, ()), WAIT_S, messages.append) == ()
    assert [str(error) in line for line in messages] == [True, False, True]


def test_wait_returns_reasons_or_raises_error_of_last_attempt() -> None:
    assert wait_until_safe(ask_results(NO), 0.0, print) == NO
    with pytest.raises(BrokerUnreachable):
        wait_until_safe(ask_results(BrokerUnreachable("no broker at …")), 0.0, print)


@pytest.mark.parametrize("error", [LoginFailed("…"), KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)], ids=str)
def test_wait_raises_fatal_error_immediately(error: Exception) -> None:
    with pytest.raises(type(error)):
        wait_until_safe(ask_results(error), WAIT_S, print)


@contextmanager
def topics_created_and_deleted(bootstrap: str) -> Iterator[None]:
    """Create and delete topics continuously in a background thread."""
    stopping = threading.Event()
    rounds: list[list[str]] = []

    def churn() -> None:
        with Client(bootstrap) as client:
            while not stopping.is_set():
                names = [f"passing-{len(rounds)}-{each}" for each in range(5)]
                create_topics(client, [NewTopic(name, 1) for name in names])
                delete_topics(client, names)
                rounds.append(names)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(WAIT_S)
        assert not thread.is_alive()
        assert rounds


def test_topics_deleted_concurrently_are_skipped(chronik_broker: Broker) -> None:
    with chronik_broker.cluster() as cluster, topics_created_and_deleted(chronik_broker.bootstrap):
        for _ in range(100):
            topics, configs = list_topics_with_configs(cluster, ["min.insync.replicas"])
            assert {topic.name for topic in topics} == configs.keys()
            describe_partitions(cluster)


@pytest.mark.slow
def test_ok_to_stop_reports_no_while_topics_are_deleted(chronik_broker: Broker) -> None:
    with topics_created_and_deleted(chronik_broker.bootstrap):
        done = run_chronik("cluster", "ok-to-stop", "1", "--wait", "2", bootstrap=chronik_broker.bootstrap)
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith("no: ")


@pytest.mark.slow
def test_ok_to_stop_exits_with_2_without_reachable_broker() -> None:
    reserved = ReservedPorts(1)
    done = run_chronik("cluster", "ok-to-stop", "1", bootstrap=f"127.0.0.1:{reserved.ports[0]}")
    reserved.release()
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("chronik: no broker at ")
