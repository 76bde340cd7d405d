"""The consumer groups of a topic, and resets of their offsets by duration."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer

from chronik.protocol.permissions import AclOperation, AclResourceType
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient
from tests.console.rest.conftest import log_in_as

TOPIC = "consumed"
HOUR_MS = 3_600_000


@pytest.fixture(scope="module", autouse=True)
def topic(node: AuthorizingNode) -> None:
    """A topic with two partitions: three records of partition 1 are three, two and one hour old."""
    node.allow(AclOperation.ALL, AclResourceType.TOPIC, "*")
    node.allow(AclOperation.ALL, AclResourceType.GROUP, "*")
    root = log_in_as(node, "root")
    assert root.post("/topics", {"name": TOPIC, "partitions": 2}).status == 200
    now_ms = time.time_ns() // 1_000_000
    for hours in (3, 2, 1):
        body = {"value": "x", "partition": 1, "timestamp_ms": now_ms - hours * HOUR_MS}
        assert root.post(f"/topics/{TOPIC}/messages", body).status == 201


@contextmanager
def consumer(node: AuthorizingNode, group: str) -> Iterator[None]:
    """Run a consumer of the group, which commits no offsets."""
    settings = {"bootstrap.servers": node.bootstrap, "group.id": group, "client.id": f"{group}-client"}
    reader = Consumer(settings | {"enable.auto.commit": False})
    try:
        reader.subscribe([TOPIC])
        deadline = time.monotonic() + 60
        while not reader.assignment():
            assert time.monotonic() < deadline
            reader.poll(0.1)
        yield
    finally:
        reader.close()


def reset(root: ApiClient, group: str, to: str, *, dry_run: bool = False) -> dict[int, int]:
    """Reset the offsets of a group on the topic, and return them by partition."""
    body = {"topics": [TOPIC], "to": to, "dry_run": dry_run}
    answer = root.post(f"/groups/{group}/offsets", body)
    assert answer.status == 200, answer
    return {each["partition"]: each["after"] for each in answer.json["items"]}


def test_consumers_of_topic_include_groups_with_offsets_and_members(node: AuthorizingNode, root: ApiClient) -> None:
    reset(root, "batch", "start")
    assert root.post("/topics", {"name": "unrelated", "partitions": 1}).status == 200
    assert root.post("/groups/elsewhere/offsets", {"topics": ["unrelated"], "to": "start"}).status == 200
    with consumer(node, "online"):
        found = root.get(f"/topics/{TOPIC}/consumers").json
        batch, online = found["items"]
        assert (found["total"], found["complete"]) == (2, True)
        assert batch == {
            "group": "batch",
            "state": "Empty",
            "members": 0,
            "lag": 3,
            "slowest": {"partition": 1, "lag": 3, "client_id": None, "host": None},
        }
        assert (online["group"], online["members"], online["lag"]) == ("online", 1, None)
        assert [each["group"] for each in root.get(f"/topics/{TOPIC}/consumers?search=ONL").json["items"]] == ["online"]
        first = root.get(f"/topics/{TOPIC}/consumers?limit=1").json
        second = root.get(f"/topics/{TOPIC}/consumers?limit=1&after={first['next']}").json
        assert [each["group"] for each in (*first["items"], *second["items"])] == ["batch", "online"]


def test_slowest_partition_names_its_member(node: AuthorizingNode, root: ApiClient) -> None:
    reset(root, "slow", "start")
    with consumer(node, "slow"):
        (found,) = root.get(f"/topics/{TOPIC}/consumers?search=slow").json["items"]
        assert found["members"] == 1
        assert (found["slowest"]["partition"], found["slowest"]["client_id"]) == (1, "slow-client")
        assert found["slowest"]["host"].endswith("127.0.0.1")


def test_consumers_of_topic_omit_groups_without_permission(node: AuthorizingNode, root: ApiClient) -> None:
    reset(root, "batch", "start")
    alice = log_in_as(node, "alice")
    acl = {"principal": "User:alice", "resource": "topic", "name": TOPIC, "operation": "describe"}
    assert alice.get(f"/topics/{TOPIC}/consumers").status == 403
    assert root.post("/acls", {"acls": [acl]}).status == 201
    assert alice.get(f"/topics/{TOPIC}/consumers").json["items"] == []
    other = acl | {"resource": "group", "name": "batch"}
    assert root.post("/acls", {"acls": [other]}).status == 201
    assert [each["group"] for each in alice.get(f"/topics/{TOPIC}/consumers").json["items"]] == ["batch"]
    assert root.post("/acls/delete", {"acls": [acl, other]}).status == 200


def test_consumers_of_missing_topic_are_not_found(root: ApiClient) -> None:
    assert root.get("/topics/missing/consumers").status == 404


@pytest.mark.parametrize(
    ("duration", "offset"), [("PT1H30M", 2), ("PT2H30M", 1), ("P1D", 0), ("PT1M", 3)], ids=lambda each: str(each)
)
def test_offsets_are_reset_by_duration(root: ApiClient, duration: str, offset: int) -> None:
    assert reset(root, "by-duration", duration, dry_run=True) == {0: 0, 1: offset}


def test_malformed_duration_is_rejected(root: ApiClient) -> None:
    answer = root.post("/groups/by-duration/offsets", {"topics": [TOPIC], "to": "PT"})
    assert (answer.status, answer.json["error"]) == (400, "'PT': expected an ISO 8601 duration, such as P1DT2H30M")


def test_acls_are_matched_by_resource(root: ApiClient) -> None:
    acl = {"principal": "User:alice", "resource": "topic", "operation": "read", "host": "*", "permission": "allow"}
    acls = [
        acl | {"name": "acl-orders", "pattern": "literal"},
        acl | {"name": "acl-", "pattern": "prefixed"},
        acl | {"name": "acl-other", "pattern": "literal"},
    ]
    assert root.post("/acls", {"acls": acls}).status == 201
    found = root.get("/acls?resource=topic&name=acl-orders&pattern=match&principal=User:alice").json["items"]
    assert sorted(each["name"] for each in found) == ["acl-", "acl-orders"]
    assert root.post("/acls/delete", {"acls": acls}).status == 200
