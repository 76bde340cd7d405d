"""The order of the topics in the admin API's list."""

from __future__ import annotations

import pytest

from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient
from tests.console.rest.conftest import log_in_as

OPERATIONS = "chronik.console.rest.operations.topics"


@pytest.fixture(scope="module", autouse=True)
def topics(node: AuthorizingNode) -> None:
    """Topics a, b and c with 2, 3 and 1 partitions and 1, 0 and 2 records."""
    root = log_in_as(node, "root")
    for name, partitions, records in (("sort-a", 2, 1), ("sort-b", 3, 0), ("sort-c", 1, 2)):
        assert root.post("/topics", {"name": name, "partitions": partitions}).status == 200
        for _ in range(records):
            assert root.post(f"/topics/{name}/messages", {"value": "x", "partition": 0}).status == 201


def names(root: ApiClient, query: str) -> list[str]:
    found = root.get(f"/topics?search=sort-{query}").json
    return [each["name"].removeprefix("sort-") for each in found["items"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "abc"),
        ("&descending=true", "cba"),
        ("&sort=partitions", "cab"),
        ("&sort=partitions&descending=true", "bac"),
        ("&sort=messages&descending=true", "cab"),
        ("&sort=bytes", "bac"),
        ("&sort=replication_factor", "abc"),
        ("&sort=status", "abc"),
    ],
)
def test_topics_are_sorted(root: ApiClient, query: str, expected: str) -> None:
    assert names(root, query) == list(expected)


def test_sorted_topics_are_paginated(root: ApiClient) -> None:
    query = "&sort=messages&descending=true&limit=2"
    first = root.get(f"/topics?search=sort-{query}").json
    assert (len(first["items"]), first["total"]) == (2, 3)
    assert names(root, f"{query}&after={first['next']}") == ["b"]


@pytest.mark.parametrize("limit", ["SORTED_TOPICS_MAX", "SORTED_PARTITIONS_MAX"])
def test_too_many_topics_are_not_sorted_by_size(root: ApiClient, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    value = {"SORTED_TOPICS_MAX": 3, "SORTED_PARTITIONS_MAX": 6}[limit]
    monkeypatch.setattr(f"{OPERATIONS}.{limit}", value)
    assert names(root, "&sort=bytes") == ["b", "a", "c"]
    monkeypatch.setattr(f"{OPERATIONS}.{limit}", value - 1)
    answer = root.get("/topics?search=sort-&sort=bytes")
    assert answer.status == 400
    assert answer.json["error"].startswith("3 topics with 6 partitions cannot be sorted by bytes")
    assert names(root, "&sort=partitions") == ["c", "a", "b"]
