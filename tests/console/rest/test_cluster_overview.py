from __future__ import annotations

from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest import operation_cases
from tests.console.rest.api_client import ApiClient


def test_overview_counts_user_and_internal_topics_separately(node: AuthorizingNode, root: ApiClient) -> None:
    operation_cases.prepare_group(node, root)  # creates __consumer_offsets
    operation_cases.prepare_pipeline(node, root)
    topics = root.get("/topics?limit=100").json["items"]
    with_internal = root.get("/topics?limit=100&internal=true").json["items"]
    assert len(topics) < len(with_internal)
    counted = root.get("/cluster").json
    assert (counted["topics"], counted["internal_topics"]) == (len(topics), len(with_internal) - len(topics))
    assert counted["partitions"] == sum(each["partitions"] for each in with_internal)
