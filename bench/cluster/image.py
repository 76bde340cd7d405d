"""The cost of a joining or failing broker for every node: the time to apply its command to an image.

Measured by partitions and brokers, without processes. These costs grow with the cluster.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from bench.cluster.figures import ClusterBenchmarkPlan, Figure
from chronik.bench.errors import BenchmarkError
from chronik.controller.partition_maintenance import find_leaderless_partitions, find_unbalanced_partitions
from chronik.metadata.apply import apply
from chronik.metadata.commands.brokers import BrokerStatus, RegisterBroker, UpdateBrokerStatus
from chronik.metadata.commands.envelope import Command, Envelope
from chronik.metadata.commands.topics import CreateTopic, PartitionAssignment
from chronik.metadata.image import Image
from chronik.metadata.snapshot import encode_snapshot
from chronik.planning.placement import PlacementCandidate, place_replicas
from chronik.protocol.errors import ErrorCode

SIZES: Final = ((15, 1000), (15, 10_000), (15, 100_000), (64, 100_000))
"""Brokers and partitions of each case."""

PARTITIONS_PER_TOPIC: Final = 100
REPLICATION_FACTOR: Final = 3
ADDED_BROKERS: Final = 5
IMBALANCE_PERCENT: Final = 10


def measure_image(plan: ClusterBenchmarkPlan) -> list[Figure]:
    return [figure for brokers, partitions in SIZES for figure in _figures(_Image(brokers, partitions))]


class _Image:
    """An image and the commands that created it."""

    def __init__(self, brokers: int, partitions: int) -> None:
        self.image = Image()
        self.brokers, self.partitions = brokers, partitions
        self._sequences = itertools.count(1)
        for broker_id in range(1, brokers + 1):
            self.register(broker_id)
        places = [PlacementCandidate(broker_id, None) for broker_id in range(1, brokers + 1)]
        for number, first in enumerate(range(0, partitions, PARTITIONS_PER_TOPIC)):
            replica_lists = place_replicas(
                min(PARTITIONS_PER_TOPIC, partitions - first), REPLICATION_FACTOR, places, first
            )
            assignments = tuple(PartitionAssignment(each, each, each[0]) for each in replica_lists)
            self.apply_command(CreateTopic(os.urandom(16), f"topic-{number}", assignments, {}, 0))

    def register(self, broker_id: int) -> None:
        self.apply_command(RegisterBroker(broker_id, "127.0.0.1", 9092, None, os.urandom(16), os.urandom(16)))

    def set_status(self, broker_id: int, status: BrokerStatus) -> None:
        self.apply_command(UpdateBrokerStatus(broker_id, status))

    def apply_command(self, command: Command) -> None:
        sequence = next(self._sequences)
        envelope = Envelope(1, b"bench", sequence, sequence - 1, command)
        result = apply(self.image, envelope, self.image.applied_index + 1).result
        if result.code is not ErrorCode.NONE:
            raise BenchmarkError(f"{type(command).__name__} was rejected: {result.message}")

    def snapshot_bytes(self) -> int:
        return sum(map(len, encode_snapshot(self.image.freeze())))


def _figures(cluster_image: _Image) -> list[Figure]:
    newcomers = range(cluster_image.brokers + 1, cluster_image.brokers + 1 + ADDED_BROKERS)
    joins = [_milliseconds(partial(cluster_image.register, broker_id)) for broker_id in newcomers]
    searches = [_milliseconds(lambda: list(find_leaderless_partitions(cluster_image.image))) for _ in newcomers]
    failures, returning = [], []
    for broker_id in range(1, 1 + ADDED_BROKERS):
        failures.append(_milliseconds(partial(cluster_image.set_status, broker_id, BrokerStatus.OFFLINE)))
        returning.append(_milliseconds(partial(cluster_image.set_status, broker_id, BrokerStatus.ONLINE)))
    balancing = [
        _milliseconds(lambda: find_unbalanced_partitions(cluster_image.image, IMBALANCE_PERCENT)) for _ in newcomers
    ]
    megabytes = cluster_image.snapshot_bytes() / 1e6
    where = f"image of {cluster_image.partitions:,} partitions on {cluster_image.brokers} brokers"
    return [
        Figure(f"{where}: a broker joins, ms", joins),
        Figure(f"{where}: find partitions without a leader, ms", searches),
        Figure(f"{where}: a broker goes offline, ms", failures),
        Figure(f"{where}: a broker comes back, ms", returning),
        Figure(f"{where}: find leaders out of balance, ms", balancing),
        Figure(f"{where}: snapshot, MB", [megabytes]),
    ]


def _milliseconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - started)
