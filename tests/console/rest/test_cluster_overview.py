from __future__ import annotations

from tests.api.guarded import GuardedNode
from tests.console.rest import cases
from tests.console.rest.asking import Browser


def test_overview_counts_user_and_internal_topics_separately(node: GuardedNode, root: Browser) -> None:
    cases.group(node, root)  # creates __consumer_offsets
    cases.pipeline(node, root)
    topics = root.get("/topics?limit=100").json["items"]
    with_internal = root.get("/topics?limit=100&internal=true").json["items"]
    assert len(topics) < len(with_internal)
    counted = root.get("/cluster").json
    assert (counted["topics"], counted["internal_topics"]) == (len(topics), len(with_internal) - len(topics))
    assert counted["partitions"] == sum(each["partitions"] for each in with_internal)
