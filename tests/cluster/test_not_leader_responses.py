"""A node that does not lead a partition returns the leader, if the response version has a field for its address.

From Fetch 16 and Produce 10 on, the response contains the address. With an id alone (Fetch 12), kafka-python would look
for a broker that it may not know, and fail.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.fetch import FetchResponse
from chronik.testing.cluster import Cluster, ClusterNode
from tests.api import request_builders
from tests.cluster.partitions import create_topic, wait_until_in_sync
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

LEADER, FOLLOWER = 1, 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        create_topic(cluster[1], "orders", [LEADER, FOLLOWER, 3])
        wait_until_in_sync(cluster, "orders")
        yield cluster


def fetch_from(node: ClusterNode, version: int, epoch: int = -1) -> FetchResponse:
    with RawClient(node.bootstrap) as client:
        topic = request_builders.describe_topic(client, "orders").topic_id if version >= 13 else "orders"
        request = request_builders.fetch_request((topic, 0, 0))
        request.topics[0].partitions[0].current_leader_epoch = epoch
        return client.request(request, version, FetchResponse)


@pytest.mark.parametrize("version", [16, 18])
def test_follower_returns_leader_and_its_address(cluster: Cluster, version: int) -> None:
    response = fetch_from(cluster[FOLLOWER], version)
    (data,) = response.responses[0].partitions
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert data.current_leader.leader_id == LEADER
    assert data.current_leader.leader_epoch >= 0
    (endpoint,) = response.node_endpoints
    assert (endpoint.node_id, f"{endpoint.host}:{endpoint.port}") == (LEADER, cluster[LEADER].bootstrap)


@pytest.mark.parametrize("version", [12, 15])
def test_response_without_address_field_contains_no_leader(cluster: Cluster, version: int) -> None:
    (data,) = fetch_from(cluster[FOLLOWER], version).responses[0].partitions
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (-1, -1)


def test_leader_returns_epoch_to_outdated_client(cluster: Cluster) -> None:
    cluster[LEADER].stop()
    cluster[LEADER].start()
    wait_until_in_sync(cluster, "orders")
    with RawClient(cluster[FOLLOWER].bootstrap) as client:
        (known,) = request_builders.describe_topic(client, "orders").partitions
    assert known.leader_epoch > 0
    response = fetch_from(cluster[known.leader_id], 16, epoch=known.leader_epoch - 1)
    (data,) = response.responses[0].partitions
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (known.leader_id, known.leader_epoch)
    assert [endpoint.node_id for endpoint in response.node_endpoints] == [known.leader_id]
