"""`chronik bench metadata`: sequential Metadata requests for one topic among many on one connection."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Final

from chronik.bench.arguments import connect, parse_positive_int
from chronik.bench.errors import BenchmarkError
from chronik.bench.librdkafka_config import create_temporary_topics, generate_name
from chronik.bench.statistics import Latency
from chronik.client.cluster import ClusterClient
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

WARM_UP_REQUESTS: Final = 100


@dataclass(frozen=True, slots=True)
class MetadataResult:
    """Throughput and latency of Metadata requests."""

    topics: int
    requests: int
    requests_per_second: float
    latency: Latency


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topics", type=parse_positive_int, default=1000, metavar="N", help="topics (default: %(default)s)"
    )
    parser.add_argument(
        "--requests", type=parse_positive_int, default=5000, metavar="N", help="requests to send (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> list[MetadataResult]:
    with connect(arguments) as cluster:
        return [measure(cluster, arguments.topics, arguments.requests)]


def measure(cluster: ClusterClient, topics: int, requests: int) -> MetadataResult:
    names = [f"{generate_name('metadata')}-{number}" for number in range(topics)]
    with create_temporary_topics(cluster, names):
        for number in range(WARM_UP_REQUESTS):
            _request_metadata(cluster, names[number % topics])
        started = time.perf_counter()
        seconds = [_request_metadata(cluster, names[number % topics]) for number in range(requests)]
        elapsed_s = time.perf_counter() - started
    return MetadataResult(topics, requests, requests / elapsed_s, Latency.from_seconds(seconds))


def _request_metadata(cluster: ClusterClient, name: str) -> float:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    connection = cluster.any_broker()
    started = time.perf_counter()
    response = connection.request(request, MetadataResponse)
    seconds = time.perf_counter() - started
    if [topic.name for topic in response.topics if not topic.error_code] != [name]:
        raise BenchmarkError(f"topic {name} was created but is missing in the Metadata response")
    return seconds
