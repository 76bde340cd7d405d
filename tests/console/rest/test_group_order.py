"""The order of the groups in the admin API's list."""

from __future__ import annotations

import pytest

from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient
from tests.console.rest.conftest import log_in_as

TOPIC, HIDDEN = "ordered", "ordered-hidden"
OPERATIONS = "chronik.console.rest.operations.groups"


@pytest.fixture(scope="module", autouse=True)
def groups(node: AuthorizingNode) -> None:
    """Groups a, b and c with a lag of 1, 3 and 0, and d with a lag of 3 on another topic."""
    root = log_in_as(node, "root")
    for topic in (TOPIC, HIDDEN):
        assert root.post("/topics", {"name": topic, "partitions": 1}).status == 200
        for _ in range(3):
            assert root.post(f"/topics/{topic}/messages", {"value": "x", "partition": 0}).status == 201
    for name, topic, offset in (("a", TOPIC, 2), ("b", TOPIC, 0), ("c", TOPIC, 3), ("d", HIDDEN, 1)):
        body = {"topics": [topic], "to": str(offset)}
        assert root.post(f"/groups/order-{name}/offsets", body).status == 200


def names(client: ApiClient, query: str) -> str:
    found = client.get(f"/groups?search=order-{query}").json
    return "".join(each["group"].removeprefix("order-") for each in found["items"])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "abcd"),
        ("&descending=true", "dcba"),
        ("&sort=lag&descending=true", "bdac"),
        ("&sort=lag", "cadb"),
        ("&sort=state", "abcd"),
        ("&sort=lag&limit=2", "ca"),
        ("&sort=lag&limit=2&after=2", "db"),
    ],
)
def test_groups_are_sorted(root: ApiClient, query: str, expected: str) -> None:
    assert names(root, query) == expected


def test_groups_show_since_when_their_lag_is_a_problem(node: AuthorizingNode, root: ApiClient) -> None:
    def has_problem() -> bool:
        report = node.services.latest_health()
        return report is not None and "order-b" in {each.subject for each in report.problems}

    assert root.send("PATCH", "/configs", {"set": {"chronik.lag.budget": "2"}}).status == 200
    node.wait_until(has_problem)
    since = {each["group"]: each["lagging_since_ms"] for each in root.get("/groups?search=order-").json["items"]}
    problems = {each["subject"]: each["since_ms"] for each in root.get("/health").json["problems"]}
    assert since == {name: problems.get(name) for name in ("order-a", "order-b", "order-c", "order-d")}
    assert since["order-b"] is not None
    assert since["order-a"] is None
    assert root.get("/groups/order-b").json["lagging_since_ms"] == since["order-b"]
    acl = {"principal": "User:alice", "operation": "describe", "resource": "group", "name": "order-b"}
    assert root.post("/acls", {"acls": [acl]}).status == 201
    (hidden,) = log_in_as(node, "alice").get("/groups").json["items"]
    assert (hidden["lag"], hidden["lagging_since_ms"]) == (None, None), "the lag on hidden topics is not disclosed"
    assert root.post("/acls/delete", {"acls": [acl]}).status == 200


def test_order_by_lag_ignores_hidden_topics(node: AuthorizingNode, root: ApiClient) -> None:
    acl = {"principal": "User:alice", "operation": "describe"}
    acls = [
        acl | {"resource": "group", "name": "order-", "pattern": "prefixed"},
        acl | {"resource": "topic", "name": TOPIC},
    ]
    assert root.post("/acls", {"acls": acls}).status == 201
    assert names(log_in_as(node, "alice"), "&sort=lag&descending=true") == "bacd"
    assert root.post("/acls/delete", {"acls": acls}).status == 200


@pytest.mark.parametrize("limit", ["SORTED_GROUPS_MAX", "SORTED_OFFSETS_MAX"])
def test_too_many_groups_are_not_sorted_by_lag(root: ApiClient, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(f"{OPERATIONS}.{limit}", 4)
    assert names(root, "&sort=lag") == "cadb"
    monkeypatch.setattr(f"{OPERATIONS}.{limit}", 3)
    answer = root.get("/groups?search=order-&sort=lag")
    assert answer.status == 400
    assert "cannot be sorted by lag" in answer.json["error"]
    assert names(root, "&sort=state") == "abcd"
