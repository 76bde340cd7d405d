"""The history of metrics: values, time ranges, limits, and what users without permissions see."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest import operation_cases
from tests.console.rest.api_client import ApiClient
from tests.console.rest.operation_cases import GROUP, TOPIC

ALL_SCOPES = "in_bytes,log_bytes,topic_bytes,group_lag,group_topic_lag"


@pytest.fixture(scope="module", autouse=True)
def sampled(node: AuthorizingNode) -> None:
    """A node with a topic of one message and a group that has not consumed it, and one sample of both."""
    root = ApiClient(node.http)
    root.log_in("root", "correct horse")
    operation_cases.prepare_group(node, root)
    node.sample_history()


def last_values(answer: Any) -> dict[tuple[str, str | None, str | None], float | None]:
    assert answer.status == 200, answer
    return {
        (each["metric"], each["group"], each["topic"]): next(
            (v for v in reversed(each["values"]) if v is not None), None
        )
        for each in answer.json["series"]
    }


def test_history_has_the_sampled_values(root: ApiClient) -> None:
    found = last_values(root.get(f"/history?metrics=memory,{ALL_SCOPES}"))
    topic_bytes = root.get(f"/topics/{TOPIC}").json["bytes"]
    assert found["topic_bytes", None, TOPIC] == topic_bytes > 0
    assert found["group_lag", GROUP, None] == found["group_topic_lag", GROUP, TOPIC] == 1
    assert (found["memory", None, None] or 0) > 1e7
    assert ("in_bytes", None, None) in found


def test_history_of_named_subjects_has_no_others(root: ApiClient) -> None:
    found = last_values(root.get(f"/history?metrics=topic_bytes,topic_in_records&topic={TOPIC}"))
    assert found.keys() == {("topic_bytes", None, TOPIC), ("topic_in_records", None, TOPIC)}
    found = last_values(root.get(f"/history?metrics=group_topic_lag&topic={TOPIC}"))
    assert found == {("group_topic_lag", GROUP, TOPIC): 1.0}
    assert last_values(root.get("/history?metrics=topic_bytes&topic=unknown")) == {}


def test_history_of_nodes_is_separate_on_request(root: ApiClient) -> None:
    for query in ("by_node=true", "node=1"):
        answer = root.get(f"/history?metrics=memory&{query}").json
        assert [each["node"] for each in answer["series"]] == [1]
        assert (answer["nodes"], answer["missing_nodes"]) == ([1], [])
    assert root.get("/history?metrics=memory&node=2").status == 404


def test_points_have_equal_steps_that_depend_on_the_range(root: ApiClient) -> None:
    for range_s, step_s in ((600, 10), (3600, 10), (21_600, 60), (86_400, 300)):
        answer = root.get(f"/history?metrics=memory&range_s={range_s}").json
        assert (answer["step_s"], answer["points"]) == (step_s, range_s // step_s)
        assert answer["start_ms"] % (1000 * step_s) == 0
        assert [len(each["values"]) for each in answer["series"]] == [range_s // step_s]
    coarse = root.get("/history?metrics=memory&range_s=3600&step_s=300").json
    assert (coarse["step_s"], coarse["points"]) == (300, 12)


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("metrics=", 400, "expected 1 to 20 names"),
        ("metrics=nothing", 400, "unknown metric 'nothing'"),
        ("metrics=memory&range_s=59", 422, "range_s"),
        ("metrics=memory&range_s=86401", 422, "range_s"),
        ("metrics=memory&step_s=0", 422, "step_s"),
        ("metrics=memory&limit=21", 422, "limit"),
        ("metrics=memory&end_ms=99999999999999", 400, "end_ms is in the future"),
        ("", 422, "metrics"),
    ],
)
def test_invalid_query_is_rejected(root: ApiClient, query: str, status: int, message: str) -> None:
    answer = root.get(f"/history?{query}")
    assert answer.status == status
    assert message in answer.json["error"]


def test_only_described_topics_and_groups_have_series(root: ApiClient, mallory: ApiClient) -> None:
    metrics = "topic_bytes,group_lag,group_topic_lag"
    assert last_values(mallory.get(f"/history?metrics={metrics}")) == {}
    for path in (f"metrics=topic_bytes&topic={TOPIC}", f"metrics=group_lag&group={GROUP}", "metrics=group_lag&node=1"):
        answer = mallory.get(f"/history?{path}")
        assert (answer.status, answer.json["code"].endswith("AUTHORIZATION_FAILED")) == (403, True)
    acl = {"principal": "User:mallory", "operation": "describe"}
    group, topic = ({**acl, "resource": kind, "name": name} for kind, name in (("group", GROUP), ("topic", TOPIC)))
    expected = {
        "group": {("group_lag", GROUP, None)},
        "topic": {("topic_bytes", None, TOPIC)},
    }
    for each in (group, topic):
        assert root.post("/acls", {"acls": [each]}).status == 201
        assert last_values(mallory.get(f"/history?metrics={metrics}")).keys() == expected[each["resource"]]
        assert root.post("/acls/delete", {"acls": [each]}).status == 200
    assert root.post("/acls", {"acls": [group, topic]}).status == 201
    assert ("group_topic_lag", GROUP, TOPIC) in last_values(mallory.get(f"/history?metrics={metrics}"))
    assert root.post("/acls/delete", {"acls": [group, topic]}).status == 200


def test_history_of_deleted_topics_and_groups_is_removed(node: AuthorizingNode, root: ApiClient) -> None:
    assert root.post("/topics", {"name": "short-lived", "partitions": 1}).status == 200
    node.sample_history()
    assert last_values(root.get("/history?metrics=topic_bytes&topic=short-lived"))
    assert root.send("DELETE", "/topics/short-lived").status == 200
    node.sample_history()
    assert not last_values(root.get("/history?metrics=topic_bytes&topic=short-lived"))
