"""A quota that is changed through any node applies on all nodes within a second, and survives a kill of all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests import run_size
from tests.api.quota_requests import describe_quotas, set_quota
from tests.cluster.stopwatch import ChangeStopwatch
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

SECONDS_MAX = 1.0 if run_size.IS_LONG_RUN else 10.0
NEXT_TO_NOTHING = 1e-6
"""A request quota that any request exceeds."""


def is_throttled(node: ClusterNode, client_id: str) -> bool:
    """Return whether this node throttles the client."""
    with RawClient(node.bootstrap) as client:
        client.client_id = client_id
        return client.request(ApiVersionsRequest(), 1, ApiVersionsResponse).throttle_time_ms > 0


def all_are(cluster: Cluster, client_id: str, *, throttled: bool) -> bool:
    return {is_throttled(node, client_id) for node in cluster.live_nodes} == {throttled}


def change(node: ClusterNode, client_id: str, percentage: float | None) -> None:
    with RawClient(node.bootstrap) as client:
        set_quota(client, {"client_id": client_id}, request_percentage=percentage)


def test_quota_change_applies_on_all_nodes_and_survives_restart(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory()
    stopwatch = ChangeStopwatch(SECONDS_MAX)
    for node in cluster.live_nodes:
        client_id = f"limited-by-{node.node_id}"
        for percentage in (NEXT_TO_NOTHING, None):
            with stopwatch.change(partial(all_are, cluster, client_id, throttled=percentage is not None)):
                change(node, client_id, percentage)
    record_property("summary", stopwatch.summary("quotas"))
    change(cluster[2], "limited", NEXT_TO_NOTHING)
    for node in cluster.live_nodes:
        node.kill()
    cluster.start()
    cluster.wait_until_ready()
    with ChangeStopwatch(SECONDS_MAX).change(partial(all_are, cluster, "limited", throttled=True)):
        pass
    for node in cluster.live_nodes:
        with RawClient(node.bootstrap) as client:
            assert describe_quotas(client) == {(("client-id", "limited"),): {"request_percentage": NEXT_TO_NOTHING}}
