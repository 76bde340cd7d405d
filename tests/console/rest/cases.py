"""A test case for each operation: preparation, request, and the result without permissions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from chronik.client.cluster import Cluster
from chronik.client.records import TopicPartition
from chronik.client.transactional import Transaction
from chronik.pipeline.journal.answering import SampleAnswerer
from chronik.protocol.permissions import Operation, ResourceType
from tests.api.guarded import GuardedNode
from tests.console.rest.asking import Browser

REFUSED, EMPTY, FOR_ALL = "refused", "empty", "for all"
"""The result without permissions: 403, an empty list, or the same as for any logged-in user."""

TOPIC, GROUP, TRANSACTION, PIPELINE = "topic-secret", "group-secret", "transaction-secret", "pipeline-secret"
ACL = {"resource": "topic", "name": TOPIC, "principal": "User:alice", "operation": "read"}

Prepare = Callable[[GuardedNode, Browser], None]


def nothing(node: GuardedNode, root: Browser) -> None:
    pass


class Case(NamedTuple):
    path: str
    body: Any = None
    prepare: Prepare = nothing
    without_rights: str = REFUSED
    dry_run: bool = False
    """Whether only a dry run is tested, because a single node cannot execute the operation."""


def topic(node: GuardedNode, root: Browser) -> None:
    if TOPIC not in node.services.image.topics:
        assert root.post("/topics", {"name": TOPIC, "partitions": 2}).status == 200
        message = {"key": "key-secret", "value": '{"a": "value-secret"}', "partition": 0}
        assert root.post(f"/topics/{TOPIC}/messages", message).status == 201


def group(node: GuardedNode, root: Browser) -> None:
    topic(node, root)
    answer = root.post(f"/groups/{GROUP}/offsets", {"topics": [TOPIC], "to": "start"})
    assert answer.status == 200, answer


def transaction(node: GuardedNode, root: Browser) -> None:
    topic(node, root)
    with node.all_allowed(), Cluster(node.bootstrap) as cluster:
        opened = Transaction(cluster, TRANSACTION)
        opened.begin()
        opened.add_partitions([TopicPartition(TOPIC, 0)])


def pipeline(node: GuardedNode, root: Browser) -> None:
    topic(node, root)
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


def driver(node: GuardedNode, root: Browser) -> None:
    """Start a driver that stops after its first response."""
    pipeline(node, root)
    node.allow(Operation.WRITE, ResourceType.TOPIC, "__chronik_pipelines")

    def sample(topic: str, rows: int) -> bytes:
        answerer.close()
        return json.dumps({"columns": ["_value"], "rows": [["value-secret"]][:rows]}).encode()

    answerer = SampleAnswerer(node.bootstrap, PIPELINE, sample)


def acl(node: GuardedNode, root: Browser) -> None:
    assert root.post("/acls", {"acls": [ACL]}).status == 201


def quota(node: GuardedNode, root: Browser) -> None:
    change = {"entity": {"user": "alice"}, "values": {"producer_byte_rate": 1e6}}
    assert root.ask("PUT", "/quotas", change).status == 200


def user(node: GuardedNode, root: Browser) -> None:
    assert root.post("/users", {"name": "carol", "password": "secret"}).status == 201


CASES = {
    "session_show": Case("/session", without_rights=FOR_ALL),
    "session_login": Case("/login", {"username": "alice", "password": "correct horse"}, without_rights=FOR_ALL),
    "session_logout": Case("/logout", {}, without_rights=FOR_ALL),
    "session_openapi": Case("/openapi.json", without_rights=FOR_ALL),
    "cluster_show": Case("/cluster"),
    "live_stream": Case("/stream", prepare=group, without_rights=EMPTY),
    "nodes_list_all": Case("/nodes"),
    "nodes_add": Case("/nodes", {"id": 7, "host": "127.0.0.1", "port": 1, "dry_run": True}, dry_run=True),
    "nodes_show": Case("/nodes/1"),
    "nodes_ok_to_stop": Case("/nodes/1/ok-to-stop"),
    "nodes_drain": Case("/nodes/1/drain", {"dry_run": True}, dry_run=True),
    "nodes_undrain": Case("/nodes/1/undrain", {}),
    "nodes_remove": Case("/nodes/1/remove", {"dry_run": True}, dry_run=True),
    "nodes_promote": Case("/nodes/1/promote", {}),
    "nodes_demote": Case("/nodes/1/demote", {"dry_run": True}, dry_run=True),
    "configs_of_node": Case("/nodes/1/configs"),
    "configs_alter_of_node": Case("/nodes/1/configs", {"set": {"log.retention.ms": "1000000"}}),
    "configs_of_cluster": Case("/configs"),
    "configs_alter_of_cluster": Case("/configs", {"set": {"log.retention.ms": "1000000"}}),
    "topics_list_all": Case("/topics?internal=true", prepare=topic, without_rights=EMPTY),
    "topics_create": Case("/topics", {"name": "created", "partitions": 1, "configs": {"retention.ms": "1000"}}),
    "topics_show": Case(f"/topics/{TOPIC}", prepare=topic),
    "topics_delete": Case(f"/topics/{TOPIC}", prepare=topic),
    "configs_of_topic": Case(f"/topics/{TOPIC}/configs", prepare=topic),
    "configs_alter_of_topic": Case(f"/topics/{TOPIC}/configs", {"set": {"retention.ms": "86400000"}}, topic),
    "topics_add_partitions": Case(f"/topics/{TOPIC}/partitions", {"count": 3}, topic),
    "topics_delete_records": Case(f"/topics/{TOPIC}/records/delete", {"offsets": {"0": -1}}, topic),
    "messages_read": Case(f"/topics/{TOPIC}/messages?from=start", prepare=topic),
    "messages_produce": Case(f"/topics/{TOPIC}/messages", {"value": "x", "key": "k"}, topic),
    "searching_search": Case(f"/topics/{TOPIC}/search?text=value-secret", prepare=topic),
    "searching_tail": Case(f"/topics/{TOPIC}/tail", prepare=topic),
    "groups_list_all": Case("/groups", prepare=group, without_rights=EMPTY),
    "groups_show": Case(f"/groups/{GROUP}", prepare=group),
    "groups_delete": Case(f"/groups/{GROUP}", prepare=group),
    "groups_reset": Case(f"/groups/{GROUP}/offsets", {"to": "end"}, group),
    "groups_delete_offsets": Case(f"/groups/{GROUP}/offsets?topic={TOPIC}", prepare=group),
    "transactions_list_all": Case("/transactions", prepare=transaction, without_rights=EMPTY),
    "transactions_abort": Case(f"/transactions/{TRANSACTION}/abort", {}, transaction),
    "reassignments_list_all": Case("/reassignments"),
    "reassignments_start": Case(
        "/reassignments", {"partitions": [{"topic": TOPIC, "partition": 0, "replicas": [1]}]}, topic
    ),
    "users_list_all": Case("/users"),
    "users_put": Case("/users", {"name": "bob", "password": "secret"}),
    "users_delete": Case("/users/carol", prepare=user),
    "acls_list_all": Case("/acls", prepare=acl),
    "acls_add": Case("/acls", {"acls": [ACL | {"name": "other"}]}),
    "acls_delete": Case("/acls/delete", {"acls": [ACL]}, acl),
    "quotas_list_all": Case("/quotas", prepare=quota),
    "quotas_put": Case("/quotas", {"entity": {"user": "alice"}, "values": {"consumer_byte_rate": 1e6}}),
    "pipelines_list_all": Case("/pipelines", prepare=pipeline),
    "pipelines_show": Case(f"/pipelines/{PIPELINE}", prepare=pipeline),
    "pipelines_sample": Case(f"/pipelines/{PIPELINE}/sample?topic={TOPIC}", prepare=driver),
}
