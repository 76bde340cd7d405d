"""Batches of the maximum size are replicated like any other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from chronik.limits import MIB
from chronik.protocol.errors import ErrorCode
from chronik.testing.plugin import ClusterFactory
from tests.api.request_builders import batch, produce
from tests.cluster import replication_helpers
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")


def test_large_batches_are_replicated_when_acknowledged(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    # On a busy machine, writing that much takes long, and the follower must stay in the ISR.
    cluster = chronik_cluster_factory(broker_session_ms=20_000, broker={"replica.lag.time.max.ms": 60_000})
    largest = str(100 * MIB)
    [place] = replication_helpers.create_topic(
        cluster, "large", max_message_bytes=largest, segment_bytes=str(256 * MIB)
    )
    sizes = (20 * MIB, 90 * MIB)
    took = []
    for size in sizes:
        with RawClient(replication_helpers.leader_of(cluster, place).bootstrap) as client:
            client.socket.settimeout(replication_helpers.DEADLINE_SECONDS)
            records = batch(os.urandom(1024) * (size // 1024))
            began = time.monotonic()
            answer = produce(client, "large", records)
            took.append(time.monotonic() - began)
            assert ErrorCode(answer.error_code) is ErrorCode.NONE
    replication_helpers.check_replicas(cluster, [place])
    for log in replication_helpers.read_stored_logs(cluster, place).values():
        assert [len(stored.content) // MIB for stored in log.batches] == [20, 90]
    record_property(
        "summary",
        "on three disks: "
        + ", ".join(
            f"a batch of {size // MIB} MiB after {seconds:.1f} s" for size, seconds in zip(sizes, took, strict=True)
        ),
    )


def test_returning_follower_receives_large_batches(chronik_cluster_factory: ClusterFactory) -> None:
    # On a busy machine, the other follower is slow and must stay in the ISR.
    cluster = chronik_cluster_factory(broker_session_ms=20_000, broker={"replica.lag.time.max.ms": 60_000})
    largest = str(100 * MIB)
    [place] = replication_helpers.create_topic(
        cluster, "large", max_message_bytes=largest, segment_bytes=str(256 * MIB)
    )
    leader = replication_helpers.leader_of(cluster, place)
    away = next(node for node in cluster.nodes.values() if node is not leader)
    away.kill()
    with RawClient(leader.bootstrap) as client:
        client.socket.settimeout(replication_helpers.DEADLINE_SECONDS)
        for size in (1000, 90 * MIB, 1000):
            answer = produce(client, "large", batch(bytes(size)))
            assert ErrorCode(answer.error_code) is ErrorCode.NONE
    away.start()
    replication_helpers.check_replicas(cluster, [place])
    assert len(replication_helpers.read_stored_logs(cluster, place)[away.node_id].batches) == 3
