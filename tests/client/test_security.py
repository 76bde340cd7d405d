from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.security import AclBinding, AclFilter, add_acls, list_acls, remove_acls
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from chronik.testing import Broker

LITERAL, PREFIXED = 3, 4
ACLS = [AclBinding(2, "t", LITERAL, "User:a", "*", 3, 3), AclBinding(3, "g", PREFIXED, "User:b", "10.0.0.1", 3, 2)]


def test_partial_acl_removal_error_reports_counts() -> None:
    remaining = DeleteAclsMatchingAcl(
        resource_name="b", error_code=ErrorCode.REQUEST_TIMED_OUT, error_message="no majority"
    )
    matching = [DeleteAclsMatchingAcl(resource_name="a"), remaining]
    response = DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(matching_acls=matching)])
    controller = SimpleNamespace(request=lambda *_: response)
    cluster: Any = SimpleNamespace(controller=lambda: controller, retry=lambda send: send())
    with pytest.raises(KafkaError, match="1 ACL removed, 1 may still exist: no majority") as raised:
        remove_acls(cluster, [AclFilter()])
    assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.slow
def test_acls_persist_across_broker_crash() -> None:
    with Broker(broker={"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}) as broker:
        with ClusterClient(broker.bootstrap) as cluster:
            add_acls(cluster, ACLS)
            assert list_acls(cluster, AclFilter()) == ACLS
        broker.kill()
        broker.start()
        with ClusterClient(broker.bootstrap) as cluster:
            assert list_acls(cluster, AclFilter()) == ACLS
            assert list_acls(cluster, AclFilter(principal="User:b")) == ACLS[1:]
            assert remove_acls(cluster, [AclFilter(*ACLS[0]), AclFilter(*ACLS[0])]) == ACLS[:1]
            assert list_acls(cluster, AclFilter()) == ACLS[1:]
            with pytest.raises(KafkaError, match="Invalid empty resource name") as rejection:
                add_acls(cluster, [ACLS[0]._replace(name="")])
            assert rejection.value.code is ErrorCode.INVALID_REQUEST
            with pytest.raises(KafkaError) as unknown:
                remove_acls(cluster, [AclFilter(operation=99)])
            assert unknown.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.slow
def test_acl_requests_without_permission_are_rejected() -> None:
    configs = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with Broker(broker=configs) as broker, ClusterClient(broker.bootstrap) as cluster:
        for send in (
            lambda: list_acls(cluster, AclFilter()),
            lambda: add_acls(cluster, ACLS),
            lambda: remove_acls(cluster, [AclFilter()]),
        ):
            with pytest.raises(KafkaError) as rejection:
                send()
            assert rejection.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
