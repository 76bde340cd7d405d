"""`chronik bench topics`: the time to create many topics, with one request and with many threads."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from chronik.bench.arguments import CLIENT_ID, parse_bootstrap_access, parse_positive_int
from chronik.bench.errors import BenchmarkError
from chronik.bench.librdkafka_config import generate_name
from chronik.client.access.settings import Bootstrap
from chronik.client.admin import NewTopic, create_topics, delete_topics
from chronik.client.cluster import ClusterClient
from chronik.client.connection import BrokerConnection
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.wording import pluralize

THREADS: Final = (10, 100)
TIMEOUT_SECONDS_DEFAULT: Final = 120


@dataclass(frozen=True, slots=True)
class TopicsResult:
    """Results of a benchmark: the time to create topics with one method."""

    created_by: str
    topics: int
    seconds: float
    topics_per_second: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topics", type=parse_positive_int, default=1000, metavar="N", help="topics per run (default: %(default)s)"
    )
    parser.add_argument(
        "--timeout",
        type=parse_positive_int,
        default=TIMEOUT_SECONDS_DEFAULT,
        metavar="SECONDS",
        help="timeout of each request and of connecting (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> list[TopicsResult]:
    return measure(parse_bootstrap_access(arguments), arguments.topics, arguments.timeout)


def measure(bootstrap: Bootstrap, count: int, timeout_s: float = TIMEOUT_SECONDS_DEFAULT) -> list[TopicsResult]:
    """Run the topic creation benchmark: create topics with each method, verify them and delete them."""
    results = []
    for threads in (1, *THREADS):
        names = [f"{generate_name('topics')}-{number}" for number in range(count)]
        with _connect(bootstrap, timeout_s) as cluster:
            if threads == 1:
                seconds = _create_with_one_request(cluster, names)
            else:
                seconds = _create_with_threads(bootstrap, names, threads, timeout_s)
            _verify_topics(cluster, names)
            delete_topics(cluster, names)
        method = "one request" if threads == 1 else f"{threads} threads"
        results.append(TopicsResult(method, count, seconds, count / seconds))
    return results


def _connect(bootstrap: Bootstrap, timeout_s: float) -> ClusterClient:
    return ClusterClient(bootstrap, client_id=CLIENT_ID, timeout_s=timeout_s)


def _create_with_one_request(cluster: ClusterClient, names: Sequence[str]) -> float:
    cluster.metadata([])  # connects
    started = time.perf_counter()
    create_topics(cluster, [NewTopic(name, 1) for name in names])
    return time.perf_counter() - started


def _create_with_threads(bootstrap: Bootstrap, names: Sequence[str], threads: int, timeout_s: float) -> float:
    """Create topics concurrently. Each thread has its own connection and creates one topic per request."""
    ready = threading.Barrier(threads + 1)

    def create_some(share: Sequence[str]) -> None:
        with _connect(bootstrap, timeout_s) as cluster:
            try:
                connection = cluster.controller()
            finally:
                ready.wait(timeout_s)
            for name in share:
                _create_topic(connection, name, timeout_s)

    with ThreadPoolExecutor(threads) as pool:
        shares = [pool.submit(create_some, names[number::threads]) for number in range(threads)]
        ready.wait(timeout_s)
        started = time.perf_counter()
        for share in shares:
            share.result()
        return time.perf_counter() - started


def _create_topic(connection: BrokerConnection, name: str, timeout_s: float) -> None:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=-1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(timeout_s * 1000))
    (created,) = connection.request(request, CreateTopicsResponse).topics
    if created.error_code:
        raise BenchmarkError(f"topic {name}: {ErrorCode(created.error_code).name}: {created.error_message}")


def _verify_topics(cluster: ClusterClient, names: Sequence[str]) -> None:
    missing = [topic.name for topic in cluster.metadata(list(names)).topics if topic.error_code]
    if missing:
        raise BenchmarkError(f"{len(missing)} of {pluralize(len(names), 'topic')} were acknowledged but do not exist")
