"""A cluster of three nodes with an authorizer: every node serves requests that concern other nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from chronik.client.cluster import ClusterClient as Client
from chronik.client.security import set_password
from chronik.pipeline.journal.journal_client import JournalWriter, encode_progress
from chronik.pipeline.journal.sample_responder import SampleResponder
from chronik.pipeline_journal import PipelineTopicKey, TopicProgress
from chronik.security.sasl.outcomes import SCRAM_SHA_256
from chronik.security.sasl.scram_keys import ITERATIONS_MIN
from chronik.testing import Cluster
from chronik.testing.plugin import ClusterFactory
from tests.console.rest.api_client import ApiClient

pytestmark = pytest.mark.slow

PASSWORD = "correct horse"
DEADLINE_SECONDS = 60.0


def browser_of(cluster: Cluster, node_id: int, user: str = "root") -> ApiClient:
    browser = ApiClient(str(cluster.nodes[node_id].http))
    wait_until(lambda: browser.log_in(user, PASSWORD).status == 200)
    return browser


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.05)


def done(browser: ApiClient, method: str, path: str, body: Any = None) -> Any:
    answer = browser.send(method, path, body)
    assert answer.status in (200, 201), answer
    return answer.json


def last_values(series: list[dict[str, Any]]) -> list[float]:
    """Return the last known value of each series."""
    known = [[value for value in each["values"] if value is not None] for each in series]
    return [values[-1] for values in known if values]


def test_any_node_serves_requests_for_all_nodes(chronik_cluster_factory: ClusterFactory) -> None:
    configs = {"authorizer.class.name": "standard", "super.users": "User:root;User:ANONYMOUS"}
    cluster = chronik_cluster_factory(broker=configs)
    with Client(cluster.bootstrap) as client:
        set_password(client, "root", PASSWORD, [SCRAM_SHA_256], ITERATIONS_MIN)
    one = browser_of(cluster, 1)
    done(one, "POST", "/users", {"name": "mallory", "password": PASSWORD, "iterations": 4096})

    # Topics and messages with leaders on all nodes
    plan = done(one, "POST", "/topics", {"name": "orders", "partitions": 6, "replication_factor": 3})
    assert plan["done"]
    wait_until(lambda: {each["leader"] for each in one.get("/topics/orders").json["partitions"]} == {1, 2, 3})
    for partition in range(6):
        done(one, "POST", "/topics/orders/messages", {"partition": partition, "value": f"m{partition}"})
    two = browser_of(cluster, 2)
    wait_until(lambda: len(done(two, "GET", "/topics/orders/messages?from=start")["items"]) == 6)
    topic = done(two, "GET", "/topics/orders")
    assert topic["messages"] == 6
    assert topic["bytes"] > 0
    found = [event for event in two.events("/topics/orders/search?text=m4") if event[0] == "match"]
    assert [event[1]["partition"] for event in found] == [4]

    # Groups with coordinators on all nodes
    for name in ("a", "b", "c", "d", "e"):
        assert done(one, "POST", f"/groups/{name}/offsets", {"topics": ["orders"], "to": "start"})["done"]
    three = browser_of(cluster, 3)
    groups = done(three, "GET", "/groups")["items"]
    assert [(each["group"], each["lag"]) for each in groups] == [(name, 6) for name in "abcde"]
    assert done(three, "GET", "/groups/a")["lag"] == 6

    # The history of all nodes, and its sum
    lag = "/history?metrics=group_topic_lag&group=a&range_s=60"
    wait_until(lambda: last_values(done(two, "GET", lag)["series"]) == [6])
    memory = done(two, "GET", "/history?metrics=memory&by_node=true&range_s=60")
    assert sorted(each["node"] for each in memory["series"]) == memory["nodes"] == [1, 2, 3]
    assert memory["missing_nodes"] == []

    # Other nodes authorize the principal too
    mallory = browser_of(cluster, 1, "mallory")
    for path in ("/topics/orders", "/topics/orders/messages", "/groups/a", "/nodes/2", "/nodes/2/configs", "/cluster"):
        assert mallory.get(path).status == 403
    assert mallory.get("/groups").json["items"] == []

    # Sample rows, independent of the leader of the pipeline journal
    with Client(cluster.bootstrap) as client:
        JournalWriter(client).write([encode_progress(PipelineTopicKey("shop", "orders"), TopicProgress("waiting"))])
    answerer = SampleResponder(cluster.bootstrap, "shop", lambda topic, rows: b'{"columns": ["_value"]}')
    for browser in (one, two, three):
        wait_until(lambda by=browser: by.get("/pipelines/shop").status == 200)  # type: ignore[misc]
        assert done(browser, "GET", "/pipelines/shop/sample?topic=orders")["columns"] == ["_value"]
    assert mallory.get("/pipelines/shop/sample?topic=orders").status == 403
    answerer.close()

    # Nodes
    view = done(one, "GET", "/cluster")
    assert view["verdict"] == "3 of 3 agree"
    assert view["agrees"] is True
    assert [node["reachable"] for node in view["nodes"]] == [True] * 3
    assert sum(node["is_me"] for node in view["nodes"]) == 1
    assert done(one, "GET", "/nodes/2/configs")["items"]
    assert done(one, "GET", "/nodes/3")["log_dirs"][0]["partitions"] > 0
    assert done(one, "GET", "/nodes/3/ok-to-stop")["ok"]
    for action in ("drain", "undrain"):
        assert done(one, "POST", f"/nodes/3/{action}", {"dry_run": True})["done"] is False
        assert done(one, "POST", f"/nodes/3/{action}", {})["done"] is True
    demotion = done(one, "POST", "/nodes/3/demote", {"dry_run": True})
    assert demotion["refused"]
    assert one.post("/nodes/3/demote", {}).status == 409
    assert done(one, "POST", "/nodes", {"id": 4, "host": "127.0.0.1", "port": 1, "dry_run": True})["plan"]
    move = {"topic": "orders", "partition": 0, "replicas": [2, 3, 1]}
    assert done(one, "POST", "/reassignments", {"partitions": [move], "dry_run": True})["refused"] is None
    assert done(one, "POST", "/reassignments", {"partitions": [move]})["done"]

    # A stopped node is reported until it is back
    cluster.nodes[3].kill()
    gone = "node 3 does not respond"
    wait_until(lambda: gone in [each["text"] for each in done(one, "GET", "/cluster")["attention"]])
    wait_until(lambda: done(one, "GET", "/cluster")["verdict"] == "2 of 3 agree")
    cluster.nodes[3].start()
    wait_until(lambda: done(one, "GET", "/cluster")["verdict"] == "3 of 3 agree")

    # The state is visible without a majority
    for node_id in (2, 3):
        cluster.nodes[node_id].kill()
    message = "no majority of nodes responds: the cluster cannot be changed, and this view may be outdated"
    wait_until(lambda: message in [each["text"] for each in done(one, "GET", "/cluster")["attention"]])
    view = done(one, "GET", "/cluster")
    assert [node["reachable"] for node in view["nodes"]] == [True, False, False]
    assert next(one.events("/stream"))[1]["cluster"]["verdict"] == view["verdict"]
    assert mallory.get("/cluster").status == 403
