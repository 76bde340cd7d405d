"""Results of operations: the counts of the overview, and the pagination of messages.

Following `next` returns every message once, regardless of batch sizes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest import operation_cases
from tests.console.rest.api_client import ApiClient

TOPIC = "in-batches"
BATCHES = {0: (60,), 1: (1, 1, 1), 2: (7, 1, 30, 2)}
"""Number of messages in each batch, by partition."""
PRODUCED = {partition: list(range(sum(sizes))) for partition, sizes in BATCHES.items()}


@pytest.fixture(scope="module", autouse=True)
def topic(node: AuthorizingNode) -> None:
    with node.all_permitted(), ClusterClient(node.bootstrap) as client:
        root = ApiClient(node.http)
        root.log_in("root", "correct horse")
        assert root.post("/topics", {"name": TOPIC, "partitions": len(BATCHES), "replication_factor": 1}).status == 200
        for partition, sizes in BATCHES.items():
            for size in sizes:
                records = [OutgoingRecord(b"x", partition=partition)] * size
                Producer(client).send(TOPIC, records)


@pytest.mark.parametrize("limit", [1, 5, 20, 60, 500])
@pytest.mark.parametrize("partition", [None, 0, 1, 2])
def test_every_message_is_on_exactly_one_page(root: ApiClient, partition: int | None, limit: int) -> None:
    found: dict[int, list[int]] = {}
    pages = list(read(root, partition, limit))
    for page in pages:
        for partition_query, offset in page:
            found.setdefault(partition_query, []).append(offset)
    assert found == (PRODUCED if partition is None else {partition: PRODUCED[partition]})
    assert all(len(page) == limit for page in pages[:-1])


def read(root: ApiClient, partition: int | None, limit: int) -> Iterator[list[tuple[int, int]]]:
    partition_query = "" if partition is None else f"&partition={partition}"
    after: str | None = "start"
    while after is not None:
        answer = root.get(f"/topics/{TOPIC}/messages?from={after}&limit={limit}{partition_query}").json
        yield [(each["partition"], each["offset"]) for each in answer["items"]]
        after = answer["next"]


def test_negative_position_returns_newest_messages(root: ApiClient) -> None:
    answer = root.get(f"/topics/{TOPIC}/messages?from=-5&limit=500&partition=0").json
    assert [each["offset"] for each in answer["items"]] == [55, 56, 57, 58, 59]


def test_overview_counts_user_and_internal_topics_separately(node: AuthorizingNode, root: ApiClient) -> None:
    operation_cases.prepare_group(node, root)  # creates __consumer_offsets
    operation_cases.prepare_pipeline(node, root)
    topics = root.get("/topics?limit=100").json["items"]
    with_internal = root.get("/topics?limit=100&internal=true").json["items"]
    assert len(topics) < len(with_internal)
    counted = root.get("/cluster").json
    assert (counted["topics"], counted["internal_topics"]) == (len(topics), len(with_internal) - len(topics))
    assert counted["partitions"] == sum(each["partitions"] for each in with_internal)
