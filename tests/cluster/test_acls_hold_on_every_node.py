"""A right that is given or taken away through one node is so on all of them, and stays so when all are killed."""

from __future__ import annotations

import time

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import Cluster as Client
from chronik.client.security.acls import AclBinding, AclFilter, add_acls, remove_acls
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.protocol.permissions import Operation, ResourceType
from chronik.testing import Cluster
from chronik.testing.plugin import ClusterFactory
from tests.raw import RawClient

OTHERS_ALONE = AclBinding(ResourceType.TOPIC, "t", 3, "User:somebody", "*", Operation.READ, 3)
"""Whoever else wants the topic may not, from then on: there is an ACL about it."""
SECONDS_MAX = 10.0
"""Ten times as long as it may take, for machines that do much else."""


def told(cluster: Cluster) -> list[ErrorCode]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    codes = []
    for node in cluster.live:
        with RawClient(node.bootstrap) as client:
            codes.append(ErrorCode(client.ask(request, 12, MetadataResponse).topics[0].error_code))
    return codes


def wait_until_told(cluster: Cluster, code: ErrorCode) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while (found := told(cluster)) != [code] * 3:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def test_a_change_through_any_node_holds_on_all_and_survives_them(chronik_cluster_factory: ClusterFactory) -> None:
    configs = {"authorizer.class.name": "standard", "allow.everyone.if.no.acl.found": "true"}
    cluster = chronik_cluster_factory(broker=configs)
    with Client(cluster.bootstrap) as client:
        create_topics(client, [NewTopic("t")])
    wait_until_told(cluster, ErrorCode.NONE)
    for node in cluster.live:
        with Client(node.bootstrap) as client:
            add_acls(client, [OTHERS_ALONE])
            wait_until_told(cluster, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            remove_acls(client, [AclFilter(principal="User:somebody")])
            wait_until_told(cluster, ErrorCode.NONE)
    with Client(cluster.bootstrap) as client:
        add_acls(client, [OTHERS_ALONE])
    for node in cluster.live:
        node.kill()
    cluster.start()
    cluster.wait_until_ready()
    assert told(cluster) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 3
