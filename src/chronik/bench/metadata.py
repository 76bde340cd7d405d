"""`chronik bench metadata`: Metadata for one topic among many, one request after another on one connection."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Final

from chronik.bench.arguments import cluster_of, positive
from chronik.bench.clients import temporary_topics, unique_name
from chronik.bench.errors import BenchFailed
from chronik.bench.measures import Latency
from chronik.client.cluster import Cluster
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

WARM_UP_REQUESTS: Final = 100


@dataclass(frozen=True, slots=True)
class MetadataResult:
    topics: int
    requests: int
    requests_per_second: float
    latency: Latency


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topics", type=positive, default=1000, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--requests", type=positive, default=5000, metavar="N")


def run(arguments: argparse.Namespace) -> list[MetadataResult]:
    with cluster_of(arguments) as cluster:
        return [measure(cluster, arguments.topics, arguments.requests)]


def measure(cluster: Cluster, topics: int, requests: int) -> MetadataResult:
    names = [f"{unique_name('metadata')}-{number}" for number in range(topics)]
    with temporary_topics(cluster, names):
        for number in range(WARM_UP_REQUESTS):
            _ask(cluster, names[number % topics])
        began = time.perf_counter()
        seconds = [_ask(cluster, names[number % topics]) for number in range(requests)]
        elapsed_s = time.perf_counter() - began
    return MetadataResult(topics, requests, requests / elapsed_s, Latency.of(seconds))


def _ask(cluster: Cluster, name: str) -> float:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    connection = cluster.any_broker()
    began = time.perf_counter()
    response = connection.request(request, MetadataResponse)
    seconds = time.perf_counter() - began
    if [topic.name for topic in response.topics if not topic.error_code] != [name]:
        raise BenchFailed(f"the broker does not know topic {name}, which it has created")
    return seconds
