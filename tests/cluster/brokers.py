"""Three brokers that tests can kill, pause and isolate: Chronik or, with CHRONIK_TEST_BROKER=apache-kafka, Apache Kafka
for comparison.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.apache_kafka import ApacheKafka, kafka_unavailable_reason
from chronik.testing.cluster import Cluster

NODES = 3
READY_SECONDS_MAX = 180.0
"""Time limit after a fault, with active clients: more than a cluster needs to start on a busy machine."""

CHOSEN = os.environ.get("CHRONIK_TEST_BROKER", "chronik")
APACHE_KAFKA = "apache-kafka"


class Brokers(ABC):
    """A cluster of three brokers, numbered from 1."""

    ids = range(1, NODES + 1)
    can_cut = True
    """Whether `cut_off` is supported."""

    @property
    @abstractmethod
    def addresses(self) -> list[str]:
        """The bootstrap address of each node."""

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses)

    @abstractmethod
    def kill(self, node: int) -> None: ...

    @abstractmethod
    def start(self, node: int) -> None:
        """Start the node again. It may not be connected to the others yet when this returns."""

    @abstractmethod
    def pause(self, node: int) -> None: ...

    @abstractmethod
    def resume(self, node: int) -> None: ...

    @abstractmethod
    def cut_off(self, node: int) -> None:
        """Isolate the node from the others. Clients still reach it."""

    @abstractmethod
    def heal(self) -> None: ...

    @abstractmethod
    def wait_until_ready(self) -> None: ...


class ChronikBrokers(Brokers):
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @property
    def addresses(self) -> list[str]:
        return [node.bootstrap for node in self.cluster.nodes.values()]

    def kill(self, node: int) -> None:
        self.cluster[node].kill()

    def start(self, node: int) -> None:
        self.cluster[node].start()

    def pause(self, node: int) -> None:
        self.cluster[node].pause()

    def resume(self, node: int) -> None:
        self.cluster[node].resume()

    def cut_off(self, node: int) -> None:
        self.cluster.isolate(node)

    def heal(self) -> None:
        self.cluster.restore_links()

    def wait_until_ready(self) -> None:
        self.cluster.wait_until_ready(READY_SECONDS_MAX)


class KafkaBrokers(Brokers):
    can_cut = False

    def __init__(self, kafka: ApacheKafka) -> None:
        self.kafka = kafka

    @property
    def addresses(self) -> list[str]:
        return self.kafka.addresses

    def kill(self, node: int) -> None:
        self.kafka.kill(node - 1)

    def start(self, node: int) -> None:
        self.kafka.restart(node - 1)

    def pause(self, node: int) -> None:
        self.kafka.pause(node - 1)

    def resume(self, node: int) -> None:
        self.kafka.resume(node - 1)

    def cut_off(self, node: int) -> None:
        """Do nothing: Apache Kafka has no proxied links."""

    def heal(self) -> None:
        """Do nothing: no links were cut."""

    def wait_until_ready(self) -> None:
        self.kafka.wait_until_ready()


def linked_cluster(folder: Path) -> Cluster:
    return Cluster(NODES, folder, links=True)


@contextmanager
def running_brokers(folder: Path, chronik: Callable[[Path], Cluster] = linked_cluster) -> Iterator[Brokers]:
    """Run three brokers; `chronik` creates Chronik's cluster. Skips the test if Apache Kafka is not installed."""
    if CHOSEN != APACHE_KAFKA:
        with chronik(folder) as cluster:
            yield ChronikBrokers(cluster)
    elif (reason := kafka_unavailable_reason()) is not None:
        pytest.skip(reason)
    else:
        with ApacheKafka(folder, NODES) as kafka:
            yield KafkaBrokers(kafka)
