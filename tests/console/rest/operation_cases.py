"""A test case for each operation: preparation, request, and the result without permissions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from chronik.client.cluster import ClusterClient
from chronik.client.records import TopicPartition
from chronik.client.transaction import ProducerTransaction
from chronik.pipeline.journal.sample_responder import SampleResponder
from chronik.protocol.permissions import AclOperation, AclResourceType
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient

REJECTED, EMPTY, PUBLIC = "refused", "empty", "for all"
"""The result without permissions: 403, an empty list, or the same as for any logged-in user."""

TOPIC, GROUP, TRANSACTION, PIPELINE = "topic-secret", "group-secret", "transaction-secret", "pipeline-secret"
ACL = {"resource": "topic", "name": TOPIC, "principal": "User:alice", "operation": "read"}

Prepare = Callable[[AuthorizingNode, ApiClient], None]


def prepare_nothing(node: AuthorizingNode, root: ApiClient) -> None:
    pass


class OperationCase(NamedTuple):
    path: str
    body: Any = None
    prepare: Prepare = prepare_nothing
    unauthorized_result: str = REJECTED
    dry_run: bool = False
    """Whether only a dry run is tested, because a single node cannot execute the operation."""


def prepare_topic(node: AuthorizingNode, root: ApiClient) -> None:
    if TOPIC not in node.services.image.topics:
        assert root.post("/topics", {"name": TOPIC, "partitions": 2}).status == 200
        message = {"key": "key-secret", "value": '{"a": "value-secret"}', "partition": 0}
        assert root.post(f"/topics/{TOPIC}/messages", message).status == 201


def prepare_group(node: AuthorizingNode, root: ApiClient) -> None:
    prepare_topic(node, root)
    answer = root.post(f"/groups/{GROUP}/offsets", {"topics": [TOPIC], "to": "start"})
    assert answer.status == 200, answer


def prepare_transaction(node: AuthorizingNode, root: ApiClient) -> None:
    prepare_topic(node, root)
    with node.all_permitted(), ClusterClient(node.bootstrap) as cluster:
        opened = ProducerTransaction(cluster, TRANSACTION)
        opened.begin()
        opened.add_partitions([TopicPartition(TOPIC, 0)])


def prepare_pipeline(node: AuthorizingNode, root: ApiClient) -> None:
    prepare_topic(node, root)
    if "__chronik_pipelines" not in node.services.image.topics:
        assert root.post("/topics", {"name": "__chronik_pipelines", "partitions": 1}).status == 200
    progress = {
        "state": "running",
        "table": "/lake/orders",
        "next_offsets": {"0": 0},
        "round_rows": 5,
        "round_seconds": 2.0,
    }
    message = {"key": f"progress/{PIPELINE}/{TOPIC}", "value": json.dumps(progress)}
    assert root.post("/topics/__chronik_pipelines/messages", message).status == 201


def prepare_driver(node: AuthorizingNode, root: ApiClient) -> None:
    """Start a driver that stops after its first response."""
    prepare_pipeline(node, root)
    node.allow(AclOperation.WRITE, AclResourceType.TOPIC, "__chronik_pipelines")

    def sample(topic: str, rows: int) -> bytes:
        answerer.close()
        return json.dumps({"columns": ["_value"], "rows": [["value-secret"]][:rows]}).encode()

    answerer = SampleResponder(node.bootstrap, PIPELINE, sample)


def prepare_acl(node: AuthorizingNode, root: ApiClient) -> None:
    assert root.post("/acls", {"acls": [ACL]}).status == 201


def prepare_quota(node: AuthorizingNode, root: ApiClient) -> None:
    change = {"entity": {"user": "alice"}, "values": {"producer_byte_rate": 1e6}}
    assert root.send("PUT", "/quotas", change).status == 200


def prepare_user(node: AuthorizingNode, root: ApiClient) -> None:
    assert root.post("/users", {"name": "carol", "password": "secret"}).status == 201


CASES = {
    "session_show": OperationCase("/session", unauthorized_result=PUBLIC),
    "session_permissions": OperationCase("/permissions", unauthorized_result=PUBLIC),
    "session_login": OperationCase(
        "/login", {"username": "alice", "password": "correct horse"}, unauthorized_result=PUBLIC
    ),
    "session_logout": OperationCase("/logout", {}, unauthorized_result=PUBLIC),
    "session_openapi": OperationCase("/openapi.json", unauthorized_result=PUBLIC),
    "cluster_show": OperationCase("/cluster"),
    "cluster_health": OperationCase("/health"),
    "history_show": OperationCase("/history?metrics=in_bytes"),
    "live_stream": OperationCase("/stream", prepare=prepare_group, unauthorized_result=EMPTY),
    "nodes_list_all": OperationCase("/nodes"),
    "nodes_add": OperationCase("/nodes", {"id": 7, "host": "127.0.0.1", "port": 1, "dry_run": True}, dry_run=True),
    "nodes_show": OperationCase("/nodes/1"),
    "nodes_ok_to_stop": OperationCase("/nodes/1/ok-to-stop"),
    "nodes_drain": OperationCase("/nodes/1/drain", {"dry_run": True}, dry_run=True),
    "nodes_undrain": OperationCase("/nodes/1/undrain", {}),
    "nodes_remove": OperationCase("/nodes/1/remove", {"dry_run": True}, dry_run=True),
    "nodes_promote": OperationCase("/nodes/1/promote", {}),
    "nodes_demote": OperationCase("/nodes/1/demote", {"dry_run": True}, dry_run=True),
    "configs_of_node": OperationCase("/nodes/1/configs"),
    "configs_alter_of_node": OperationCase("/nodes/1/configs", {"set": {"log.retention.ms": "1000000"}}),
    "configs_of_cluster": OperationCase("/configs"),
    "configs_alter_of_cluster": OperationCase("/configs", {"set": {"log.retention.ms": "1000000"}}),
    "topics_list_all": OperationCase("/topics?internal=true", prepare=prepare_topic, unauthorized_result=EMPTY),
    "topics_create": OperationCase(
        "/topics", {"name": "created", "partitions": 1, "configs": {"retention.ms": "1000"}}
    ),
    "topics_show": OperationCase(f"/topics/{TOPIC}", prepare=prepare_topic),
    "topics_delete": OperationCase(f"/topics/{TOPIC}", prepare=prepare_topic),
    "configs_of_topic": OperationCase(f"/topics/{TOPIC}/configs", prepare=prepare_topic),
    "configs_alter_of_topic": OperationCase(
        f"/topics/{TOPIC}/configs", {"set": {"retention.ms": "86400000"}}, prepare_topic
    ),
    "topics_add_partitions": OperationCase(f"/topics/{TOPIC}/partitions", {"count": 3}, prepare_topic),
    "topics_delete_records": OperationCase(f"/topics/{TOPIC}/records/delete", {"offsets": {"1": -1}}, prepare_topic),
    "consumers_list_all": OperationCase(f"/topics/{TOPIC}/consumers", prepare=prepare_group),
    "statistics_compute": OperationCase(f"/topics/{TOPIC}/statistics", prepare=prepare_topic),
    "messages_read": OperationCase(f"/topics/{TOPIC}/messages?from=start", prepare=prepare_topic),
    "messages_value": OperationCase(f"/topics/{TOPIC}/messages/0/0/value", prepare=prepare_topic),
    "exports_export": OperationCase(f"/topics/{TOPIC}/export", prepare=prepare_topic),
    "messages_produce": OperationCase(f"/topics/{TOPIC}/messages", {"value": "x", "key": "k"}, prepare_topic),
    "searching_search": OperationCase(f"/topics/{TOPIC}/search?text=value-secret", prepare=prepare_topic),
    "searching_tail": OperationCase(f"/topics/{TOPIC}/tail", prepare=prepare_topic),
    "groups_list_all": OperationCase("/groups", prepare=prepare_group, unauthorized_result=EMPTY),
    "groups_show": OperationCase(f"/groups/{GROUP}", prepare=prepare_group),
    "groups_delete": OperationCase(f"/groups/{GROUP}", prepare=prepare_group),
    "groups_reset": OperationCase(f"/groups/{GROUP}/offsets", {"to": "end"}, prepare_group),
    "groups_delete_offsets": OperationCase(f"/groups/{GROUP}/offsets?topic={TOPIC}", prepare=prepare_group),
    "transactions_list_all": OperationCase("/transactions", prepare=prepare_transaction, unauthorized_result=EMPTY),
    "transactions_abort": OperationCase(f"/transactions/{TRANSACTION}/abort", {}, prepare_transaction),
    "reassignments_list_all": OperationCase("/reassignments"),
    "reassignments_plan": OperationCase(
        f"/topics/{TOPIC}/placement?nodes=1&replication_factor=1", prepare=prepare_topic
    ),
    "reassignments_start": OperationCase(
        "/reassignments", {"partitions": [{"topic": TOPIC, "partition": 0, "replicas": [1]}]}, prepare_topic
    ),
    "users_list_all": OperationCase("/users"),
    "users_put": OperationCase("/users", {"name": "bob", "password": "secret"}),
    "users_delete": OperationCase("/users/carol", prepare=prepare_user),
    "acls_list_all": OperationCase("/acls", prepare=prepare_acl),
    "acls_add": OperationCase("/acls", {"acls": [ACL | {"name": "other"}]}),
    "acls_delete": OperationCase("/acls/delete", {"acls": [ACL]}, prepare_acl),
    "acls_add_producer": OperationCase("/acls/producer", {"principal": "User:alice", "topics": [TOPIC]}),
    "acls_add_consumer": OperationCase(
        "/acls/consumer", {"principal": "User:alice", "topics": [TOPIC], "groups": [GROUP]}
    ),
    "acls_export_csv": OperationCase("/acls/export", prepare=prepare_acl),
    "acls_import_csv": OperationCase("/acls/import", {"csv": "User:alice,TOPIC,LITERAL,x,READ,ALLOW,*"}),
    "quotas_list_all": OperationCase("/quotas", prepare=prepare_quota),
    "quotas_put": OperationCase("/quotas", {"entity": {"user": "alice"}, "values": {"consumer_byte_rate": 1e6}}),
    "pipelines_list_all": OperationCase("/pipelines", prepare=prepare_pipeline),
    "pipelines_show": OperationCase(f"/pipelines/{PIPELINE}", prepare=prepare_pipeline),
    "pipelines_sample": OperationCase(f"/pipelines/{PIPELINE}/sample?topic={TOPIC}", prepare=prepare_driver),
}
