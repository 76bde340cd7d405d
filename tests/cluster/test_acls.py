"""An ACL that is added or removed through one node applies on all nodes and survives a kill of all."""

from __future__ import annotations

from collections.abc import Callable

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient as Client
from chronik.client.security import AclBinding, AclFilter, add_acls, remove_acls
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.testing import Cluster
from chronik.testing.plugin import ClusterFactory
from tests import run_size
from tests.cluster.stopwatch import ChangeStopwatch
from tests.raw import RawClient

OTHERS_ALONE = AclBinding(AclResourceType.TOPIC, "t", 3, "User:somebody", "*", AclOperation.READ, 3)
"""An ACL for another principal, which denies the topic to everyone else."""
MAY, MAY_NOT = [ErrorCode.NONE] * 3, [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 3
SECONDS_MAX = 1.0 if run_size.IS_LONG_RUN else 10.0
"""Ten times the expected duration, for busy machines."""


def authorization_errors(cluster: Cluster) -> list[ErrorCode]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    codes = []
    for node in cluster.live_nodes:
        with RawClient(node.bootstrap) as client:
            codes.append(ErrorCode(client.request(request, 12, MetadataResponse).topics[0].error_code))
    return codes


def test_acl_change_applies_on_all_nodes_and_survives_restart(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    configs = {"authorizer.class.name": "standard", "allow.everyone.if.no.acl.found": "true"}
    cluster = chronik_cluster_factory(broker=configs)
    with (
        Client(cluster.bootstrap) as client,
        ChangeStopwatch(SECONDS_MAX).change(lambda: authorization_errors(cluster) == MAY),
    ):
        create_topics(client, [NewTopic("t")])
    stopwatch = ChangeStopwatch(SECONDS_MAX)
    for node in cluster.live_nodes:
        with Client(node.bootstrap) as client:
            with stopwatch.change(lambda: authorization_errors(cluster) == MAY_NOT):
                add_acls(client, [OTHERS_ALONE])
            with stopwatch.change(lambda: authorization_errors(cluster) == MAY):
                remove_acls(client, [AclFilter(principal="User:somebody")])
    record_property("summary", stopwatch.summary("ACLs"))
    with Client(cluster.bootstrap) as client:
        add_acls(client, [OTHERS_ALONE])
    for node in cluster.live_nodes:
        node.kill()
    cluster.start()
    cluster.wait_until_ready()
    assert authorization_errors(cluster) == MAY_NOT
