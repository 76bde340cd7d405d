"""Health of real nodes: all report the same problems with the same start, also after a change of controller."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from chronik.config import Address
from chronik.console.http_client import http_get
from chronik.testing import Cluster
from chronik.testing.cluster import ClusterNode

TIMEOUT_S = 20.0
DEADLINE_SECONDS = 90.0

OF_THE_MACHINE = ("event-loop-stalls", "full-disk", "filling-disk", "different-clocks", "isr-flapping")
"""Kinds of problems that a busy machine may have."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        started.wait_until_ready()
        yield started


def get_json(http: Address, path: str) -> tuple[int, Any]:
    status, body = http_get(http, path, TIMEOUT_S)
    return status, json.loads(body)


def health_of(node: ClusterNode) -> dict[str, Any]:
    assert node.http is not None
    status, health = get_json(node.http, "/health")
    assert status in (200, 503)
    assert isinstance(health, dict)
    return health


def kinds_of(health: dict[str, Any]) -> dict[str, str]:
    return {each["id"]: each["severity"] for each in health.get("problems", ()) if each["kind"] not in OF_THE_MACHINE}


def wait_for(find: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := find()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return found


def test_stopped_node_is_reported_alike_by_all_nodes_and_after_a_change_of_controller(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        wait_for(partial(_is_healthy, node), f"{node} is healthy")
    controller = cluster.leader()
    stopped, other = (node for node in cluster.nodes.values() if node is not controller)
    stopped_id = next(node_id for node_id, node in cluster.nodes.items() if node is stopped)
    stopped.kill()
    expected = {f"unreachable-node:{stopped_id}", "no-voter-to-spare", "under-replicated"}
    for node in (controller, other):
        wait_for(partial(_reports_all, node, expected), f"{node} reports {expected}")
    found = {each["id"]: each for each in health_of(other)["problems"]}
    assert found[f"unreachable-node:{stopped_id}"]["severity"] == "critical"
    behind = found["under-replicated"]
    assert behind["message"].partition(" of ")[0] == behind["message"].split(" of ")[1].partition(" ")[0]
    ours = {each["id"]: each["since_ms"] for each in health_of(controller)["problems"] if each["id"] in expected}
    theirs = {each["id"]: each["since_ms"] for each in health_of(other)["problems"] if each["id"] in expected}
    assert ours == theirs
    assert other.http is not None
    status, rest = get_json(other.http, "/api/v1/health")
    assert status == 200
    assert expected <= {each["id"] for each in rest["problems"]}
    assert get_json(other.http, "/api/v1/cluster")[1]["health"]["status"] == "critical"

    # A metric counts the problems, and another controller continues them with their start
    metrics = http_get(other.http, "/metrics", TIMEOUT_S)[1].decode()
    assert 'chronik_problems{kind="unreachable-node",severity="critical"} 1' in metrics
    assert 'chronik_problems{kind="stopped-group",severity="info"} 0' in metrics
    stopped.start()
    cluster.wait_until_ready()
    controller.kill()
    killed_id = next(node_id for node_id, node in cluster.nodes.items() if node is controller)
    again = wait_for(
        lambda: _if_reported(other, f"unreachable-node:{killed_id}"), "the previous controller is reported"
    )
    assert again["node_id"] != killed_id


def _if_reported(node: ClusterNode, problem_id: str) -> dict[str, Any] | None:
    health = health_of(node)
    return health if problem_id in kinds_of(health) else None


def _reports_all(node: ClusterNode, expected: set[str]) -> bool:
    return expected <= kinds_of(health_of(node)).keys()


def _is_healthy(node: ClusterNode) -> bool:
    health = health_of(node)
    return health["status"] != "unknown" and health["ready"] and not kinds_of(health)


def test_isolated_node_is_not_ready_and_reports_that_no_majority_responds(cluster: Cluster) -> None:
    nodes = list(cluster.nodes.values())
    for node in nodes[1:]:
        node.kill()
    wait_for(lambda: kinds_of(health_of(nodes[0])).get("no-leader") == "critical", "no majority")
    assert nodes[0].http is not None
    wait_for(lambda: get_json(nodes[0].http, "/health")[0] == 503, "the node is not ready")
    assert health_of(nodes[0])["unready_reason"]
    assert http_get(nodes[0].http, "/readyz", TIMEOUT_S)[0] == 503
    assert http_get(nodes[0].http, "/healthz", TIMEOUT_S)[0] == 200
