"""Browser scenarios for nodes: configs, draining, and adding, promoting, reassigning to and removing a fourth node."""

from __future__ import annotations

import os
from typing import Any, Final

from confluent_kafka import Producer

from chronik.client.admin import NewTopic, create_topics
from chronik.client.partitions import THROTTLED_RATE_KEYS, THROTTLED_REPLICAS_KEYS
from tests.console.web.browser import ConsoleTab
from tests.console.web.cluster_inspector import ClusterInspector

LARGE: Final = "large"
"""A topic whose single partition takes several fetches to copy: leaders send 3 MiB per response."""
RECORDS, RECORD_BYTES = 6, 900_000
NEW: Final = 4
THROTTLE_RATE: Final = THROTTLED_RATE_KEYS[0]
THROTTLED_REPLICAS: Final = THROTTLED_REPLICAS_KEYS[0]
"""The replication throttle needs a rate and the throttled replicas."""


def nodes(console: ConsoleTab, inspector: ClusterInspector) -> None:
    console.open("/nodes")
    console.page.locator("article").nth(2).wait_for()
    console.check_page("nodes")
    console.open("/nodes?tab=configs")
    console.check_page("nodes-configs")
    console.open("/nodes/3?changed=1")  # axe takes long for hundreds of configs
    console.check_page("node")
    inspector.wait_for("ok-to-stop", lambda: _is_ok_to_stop(console), True)
    console.press("drain-node?")
    console.dialog().locator(".plan li").first.wait_for()
    console.check_page("drain", "")
    console.confirm("drain-node")
    inspector.wait_for("status of node 3", lambda: inspector.status(3), "maintenance")
    inspector.wait_for("partitions led by node 3", lambda: inspector.leader_count(3), 0)
    console.press("undrain-node?")
    console.confirm("undrain-node", plan="undrain node 3")
    inspector.wait_for("status of node 3", lambda: inspector.status(3), "online")
    console.page.locator('[data-action="drain-node?"]').wait_for()
    for action in ("demote-node", "remove-node"):
        console.press(f"{action}?")
        console.dialog().get_by_role("alert").wait_for()
        assert console.dialog().locator(f'[data-action="{action}"]').is_disabled()
        console.press("cancel")


def _is_ok_to_stop(console: ConsoleTab) -> bool:
    with console.page.expect_response("**/ok-to-stop") as response:
        console.press("may-it-stop")
    ok = bool(response.value.json()["ok"])
    console.page.locator("main .notice", has_text="can be stopped safely" if ok else "should not be stopped").wait_for()
    return ok


def fourth_node(console: ConsoleTab, inspector: ClusterInspector) -> None:
    """Add a node, promote it, cancel and repeat a reassignment to it, and remove it."""
    _create_large_topic(inspector)
    _add(console, inspector)
    console.press("promote-node?")
    console.confirm("promote-node", plan=f"node {NEW}")
    inspector.wait_for("vote of the new node", lambda: inspector.is_voter(NEW), True)
    _throttle_replication(console, inspector)
    before = inspector.partitions(LARGE)[0]
    _reassign(console, before, NEW)
    inspector.wait_for("reassignments", inspector.reassignments, [(f"{LARGE}-0", [NEW])])
    _cancel_reassignment(console, inspector, before)
    console.open("/nodes?tab=configs")
    console.press("reset-config?", row=THROTTLE_RATE)
    console.confirm("reset-config", plan=THROTTLE_RATE)
    _reassign(console, before, NEW)
    inspector.wait_for("replicas", lambda: inspector.partitions(LARGE)[0], [*before[:2], NEW])
    inspector.wait_for("reassignments", inspector.reassignments, [])
    _remove(console, inspector)


def _create_large_topic(inspector: ClusterInspector) -> None:
    with inspector.cluster.client() as client:
        create_topics(client, [NewTopic(LARGE, 1)])
    producer = Producer(inspector.cluster.settings() | {"message.max.bytes": 2 * RECORD_BYTES})
    for _ in range(RECORDS):
        producer.produce(LARGE, os.urandom(RECORD_BYTES))
        assert producer.flush(60) == 0


def _add(console: ConsoleTab, inspector: ClusterInspector) -> None:
    fourth = inspector.cluster.add_node(NEW)
    raft = inspector.cluster.raft_address(NEW)
    console.open("/nodes")
    console.press("add-node?")
    console.fill(id=str(NEW), host=raft.host, port=str(raft.port))
    console.submit_with_plan("add-node", f"add node {NEW}")
    inspector.wait_for("status of the new node", lambda: inspector.status(NEW), "unregistered")
    row = console.page.locator(f"tr[data-key='{NEW}']")
    row.get_by_text("not joined yet").wait_for()
    console.open("/overview")
    console.expect_text(f"node {NEW} was added but has not joined yet")
    fourth.start()
    inspector.wait_for("status of the new node", lambda: inspector.status(NEW), "online")
    console.open("/nodes")
    console.page.get_by_label(f"Node {NEW}", exact=True).get_by_text("observer").wait_for()
    console.page.get_by_role("link", name=f"Node {NEW}", exact=True).first.click()
    console.page.get_by_role("heading", name=f"Node {NEW}").wait_for()


def _throttle_replication(console: ConsoleTab, inspector: ClusterInspector) -> None:
    """Set the throttle rate for all nodes and the throttled replicas of the topic."""
    console.open("/nodes?tab=configs")
    console.press("set-config?")
    console.fill(name=THROTTLE_RATE, value="1")
    console.submit_with_plan("set-config", THROTTLE_RATE)
    inspector.wait_for(THROTTLE_RATE, lambda: inspector.config(THROTTLE_RATE), "1")
    console.open(f"/topics/{LARGE}?tab=configs")
    console.press("change-config?", row=THROTTLED_REPLICAS)
    console.fill(value="*")
    console.submit_with_plan("change-config", THROTTLED_REPLICAS)
    inspector.wait_for(THROTTLED_REPLICAS, lambda: inspector.config(THROTTLED_REPLICAS, topic=LARGE), "*")


def _reassign(console: ConsoleTab, before: list[int], to: int) -> None:
    """Replace the last replica of the partition by another node."""
    console.open(f"/topics/{LARGE}")
    console.press("move-partition?")
    console.fill(replicas=", ".join(map(str, [*before[:2], to])))
    console.submit_with_plan("move-partition", f"to nodes {before[0]}, {before[1]}, {to}")


def _cancel_reassignment(console: ConsoleTab, inspector: ClusterInspector, before: list[int]) -> None:
    console.open("/nodes?tab=reassignments")
    row = console.page.locator("tr", has_text=LARGE)
    row.get_by_text(str(NEW), exact=True).wait_for()
    console.check_page("nodes-moving")
    console.press("cancel-reassignment?")
    console.confirm("cancel-reassignment", plan=f"cancel the reassignment of {LARGE}-0")
    console.expect_text("There are no reassignments in progress.")
    assert inspector.reassignments() == []
    assert inspector.partitions(LARGE) == [before]


def _close_dialog_during_reassignment(console: ConsoleTab) -> None:
    """Simulate a slow removal: the response says that it is not done yet."""

    def respond(route: Any) -> None:
        if route.request.post_data_json.get("dry_run"):
            route.continue_()
        else:
            route.fulfill(json={"plan": [], "refused": None, "done": False})

    console.page.route("**/remove", respond)
    console.press("remove-node?")
    console.dialog().locator(".plan").wait_for()
    console.dialog().get_by_role("textbox").fill(f"node {NEW}")
    console.press("remove-node")
    console.expect_text("Keep this dialog open")
    console.press("cancel")
    console.expect_text(f"The reassignments of node {NEW} continue.")
    console.page.unroute("**/remove")


def _remove(console: ConsoleTab, inspector: ClusterInspector) -> None:
    console.open(f"/nodes/{NEW}")
    console.press("demote-node?")
    console.confirm("demote-node", plan=f"node {NEW}")
    inspector.wait_for("vote of the new node", lambda: inspector.is_voter(NEW), False)
    _close_dialog_during_reassignment(console)
    console.press("remove-node?")
    console.expect_text("copy replicas of")
    console.confirm("remove-node", typed=f"node {NEW}", plan=f"remove node {NEW} from the cluster")
    console.expect_text(f"Node {NEW} was removed from the cluster.")
    inspector.wait_for("removed node", lambda: inspector.node(NEW), None)
    assert NEW not in inspector.partitions(LARGE)[0]
    console.page.get_by_role("heading", name="Nodes").wait_for()
    console.page.locator(f"tr[data-key='{NEW}']").wait_for(state="detached")
    inspector.cluster.remove_node(NEW)
