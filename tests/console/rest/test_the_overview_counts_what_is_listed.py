from __future__ import annotations

from tests.api.guarded import GuardedNode
from tests.console.rest import cases
from tests.console.rest.asking import Browser


def test_topics_are_as_many_as_the_list_shows_and_internal_ones_are_told_apart(
    node: GuardedNode, root: Browser
) -> None:
    cases.group(node, root)  # its offsets are in a topic, too
    cases.pipeline(node, root)
    shown = root.get("/topics?limit=100").json["items"]
    with_internal = root.get("/topics?limit=100&internal=true").json["items"]
    assert len(shown) < len(with_internal)
    counted = root.get("/cluster").json
    assert (counted["topics"], counted["internal_topics"]) == (len(shown), len(with_internal) - len(shown))
    assert counted["partitions"] == sum(each["partitions"] for each in with_internal)
