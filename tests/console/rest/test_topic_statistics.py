"""Statistics of a topic's records: keys, sizes and null values by partition."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient
from tests.console.rest.conftest import log_in_as

TOPIC = "measured"
OPERATIONS = "chronik.console.rest.operations.statistics"


@pytest.fixture(scope="module", autouse=True)
def topic(node: AuthorizingNode) -> None:
    """A topic with records in partitions 0 and 2 of three partitions."""
    root = log_in_as(node, "root")
    assert root.post("/topics", {"name": TOPIC, "partitions": 3}).status == 200
    messages = [
        {"partition": 0, "key": "a", "value": "x" * 10, "timestamp_ms": 1_000},
        {"partition": 0, "key": "a", "value": None, "timestamp_ms": 3_000},
        {"partition": 0, "key": None, "value": "x" * 40, "timestamp_ms": 2_000},
        {"partition": 2, "key": "bbb", "value": "", "headers": [{"name": "h", "value": "v"}], "timestamp_ms": 9_000},
    ]
    for message in messages:
        assert root.post(f"/topics/{TOPIC}/messages", message).status == 201


def compute(root: ApiClient, query: str = "") -> dict[str, Any]:
    events = list(root.events(f"/topics/{TOPIC}/statistics{query}"))
    assert {name for name, _ in events[:-1]} == {"progress"}
    name, statistics = events[-1]
    assert name == "statistics"
    return dict(statistics)


def test_statistics_count_keys_sizes_and_null_values_by_partition(root: ApiClient) -> None:
    found = compute(root)
    assert (found["why"], found["error"]) == ("end", None)
    first, second, third = found["partitions"]
    assert first == {
        "partition": 0,
        "records": 3,
        "null_keys": 1,
        "null_values": 1,
        "distinct_keys": 1,
        "keys": {"minimum": 1, "mean": 1.0, "maximum": 1, "total": 2},
        "values": {"minimum": 10, "mean": 25.0, "maximum": 40, "total": 50},
        "headers": 0,
        "first_timestamp_ms": 1_000,
        "last_timestamp_ms": 3_000,
    }
    assert (second["records"], second["values"]["mean"], second["first_timestamp_ms"]) == (0, None, None)
    assert (third["headers"], third["values"]["minimum"]) == (1, 0)
    whole = found["topic"]
    assert (whole["partition"], whole["records"], whole["distinct_keys"], whole["null_values"]) == (None, 4, 2, 1)
    assert whole["values"] == {"minimum": 0, "mean": 16.7, "maximum": 40, "total": 50}
    assert (whole["first_timestamp_ms"], whole["last_timestamp_ms"]) == (1_000, 9_000)


def test_statistics_are_limited_by_partition_and_position(root: ApiClient) -> None:
    found = compute(root, "?partition=0&from=-2")
    assert [each["partition"] for each in found["partitions"]] == [0]
    assert (found["topic"]["records"], found["topic"]["null_keys"]) == (2, 1)


def test_statistics_are_limited_by_number_of_messages(root: ApiClient) -> None:
    found = compute(root, "?max_messages=1")
    assert found["why"] == "messages"
    assert 1 <= found["topic"]["records"] < 4


def test_topic_with_too_many_partitions_needs_a_partition(root: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{OPERATIONS}.PARTITIONS_MAX", 2)
    answer = root.get(f"/topics/{TOPIC}/statistics")
    assert (answer.status, answer.json["error"]) == (400, "the topic has more than 2 partitions: select a partition")
    assert compute(root, "?partition=2")["topic"]["records"] == 1
    monkeypatch.setattr(f"{OPERATIONS}.PARTITIONS_MAX", 3)
    assert compute(root)["topic"]["records"] == 4


def test_partitions_beyond_the_first_fetch_are_read(root: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{OPERATIONS}.FETCHED_PARTITIONS_MAX", 1)
    assert [each["records"] for each in compute(root)["partitions"]] == [3, 0, 1]


def test_statistics_of_missing_topic_are_not_found(root: ApiClient) -> None:
    assert root.get("/topics/missing/statistics").status == 404
