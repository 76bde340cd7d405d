"""All that can be done with nodes: configs, drains, and a fourth that comes, votes, gets partitions, and leaves."""

from __future__ import annotations

import os
from typing import Any, Final

from confluent_kafka import Producer

from chronik.client.admin import NewTopic, create_topics
from chronik.client.throttle import RATES, REPLICAS
from tests.console.web.browser import Console
from tests.console.web.seen import Seen

HEAVY: Final = "heavy"
"""Has one partition, which takes more than one answer to be copied: leaders send 3 MiB at a time."""
RECORDS, RECORD_BYTES = 6, 900_000
NEW: Final = 4
SLOW: Final = RATES[0]
LED: Final = REPLICAS[0]
"""How fast leaders send, and of which replicas: both are set."""


def nodes(console: Console, seen: Seen) -> None:
    console.open("/nodes")
    console.look("nodes")
    console.open("/nodes?tab=configs")
    console.look("nodes-configs")
    console.open("/nodes/3?changed=1")  # hundreds of configs take axe its time, and look like those of topics
    console.look("node")
    seen.until("whether it can be stopped", lambda: _may_stop(console), True)
    console.press("drain-node?")
    console.dialog().locator(".plan li").first.wait_for()
    console.look("drain", "")
    console.does("drain-node")
    seen.until("status of node 3", lambda: seen.status(3), "maintenance")
    seen.until("what node 3 leads", lambda: seen.led_by(3), 0)
    console.press("undrain-node?")
    console.does("undrain-node", plan="undrain node 3")
    seen.until("status of node 3", lambda: seen.status(3), "online")
    console.page.locator('[data-action="drain-node?"]').wait_for()
    for action in ("demote-node", "remove-node"):
        console.press(f"{action}?")
        console.dialog().get_by_role("alert").get_by_text("none of them could fail").wait_for()
        assert console.dialog().locator(f'[data-action="{action}"]').is_disabled()
        console.press("cancel")


def _may_stop(console: Console) -> bool:
    with console.page.expect_response("**/ok-to-stop") as answered:
        console.press("may-it-stop")
    ok = bool(answered.value.json()["ok"])
    console.page.locator("main .notice", has_text="can be stopped" if ok else "should not be stopped").wait_for()
    return ok


def a_fourth(console: Console, seen: Seen) -> None:
    """It comes, votes, gets a partition at the second try, and goes."""
    _heavy_topic(seen)
    _add(console, seen)
    console.press("promote-node?")
    console.does("promote-node", plan=f"give node {NEW} a vote")
    seen.until("its vote", lambda: seen.is_voter(NEW), True)
    _slow_down(console, seen)
    before = seen.partitions(HEAVY)[0]
    _move(console, before, NEW)
    seen.until("moves", seen.moves, [(f"{HEAVY}-0", [NEW])])
    _call_off(console, seen, before)
    console.open("/nodes?tab=configs")
    console.press("reset-config?", row=SLOW)
    console.does("reset-config", plan=SLOW)
    _move(console, before, NEW)
    seen.until("copies", lambda: seen.partitions(HEAVY)[0], [*before[:2], NEW])
    seen.until("moves", seen.moves, [])
    _remove(console, seen)


def _heavy_topic(seen: Seen) -> None:
    with seen.cluster.client() as client:
        create_topics(client, [NewTopic(HEAVY, 1)])
    producer = Producer(seen.cluster.settings() | {"message.max.bytes": 2 * RECORD_BYTES})
    for _ in range(RECORDS):
        producer.produce(HEAVY, os.urandom(RECORD_BYTES))
        assert producer.flush(60) == 0


def _add(console: Console, seen: Seen) -> None:
    fourth = seen.cluster.add_node(NEW)
    raft = seen.cluster.raft_address(NEW)
    console.open("/nodes")
    console.press("add-node?")
    console.fill(id=str(NEW), host=raft.host, port=str(raft.port))
    console.planned("add-node", f"add node {NEW}")
    seen.until("status of the new node", lambda: seen.status(NEW), "unregistered")
    row = console.page.locator(f"tr[data-key='{NEW}']")
    row.get_by_text("not here yet").wait_for()
    console.open("/overview")
    console.sees(f"node {NEW} was added, and was never here yet")
    fourth.start()
    seen.until("status of the new node", lambda: seen.status(NEW), "online")
    console.page.get_by_label(f"Node {NEW}", exact=True).get_by_text("observer").wait_for()
    console.page.get_by_role("link", name=f"Node {NEW}").click()
    console.page.get_by_role("heading", name=f"Node {NEW}").wait_for()


def _slow_down(console: Console, seen: Seen) -> None:
    """For all nodes, and for this topic: both have to be set."""
    console.open("/nodes?tab=configs")
    console.press("set-config?")
    console.fill(name=SLOW, value="1")
    console.planned("set-config", SLOW)
    seen.until(SLOW, lambda: seen.config(SLOW), "1")
    console.open(f"/topics/{HEAVY}?tab=configs")
    console.press("change-config?", row=LED)
    console.fill(value="*")
    console.planned("change-config", LED)
    seen.until(LED, lambda: seen.config(LED, topic=HEAVY), "*")


def _move(console: Console, before: list[int], to: int) -> None:
    """Lets a node have the place of the last."""
    console.open(f"/topics/{HEAVY}")
    console.press("move-partition?")
    console.fill(replicas=", ".join(map(str, [*before[:2], to])))
    console.planned("move-partition", f"to nodes {before[0]}, {before[1]}, {to}")


def _call_off(console: Console, seen: Seen, before: list[int]) -> None:
    console.open("/nodes?tab=moving")
    row = console.page.locator("tr", has_text=HEAVY)
    row.get_by_text(str(NEW), exact=True).wait_for()
    console.look("nodes-moving")
    console.press("call-off?")
    console.does("call-off", plan=f"leave {HEAVY}-0 where it was")
    console.sees("Nothing is being moved.")
    assert seen.moves() == []
    assert seen.partitions(HEAVY) == [before]


def _leave_while_it_moves(console: Console) -> None:
    """As if copies took their time: what was begun is told not to be done."""

    def answer(route: Any) -> None:
        if route.request.post_data_json.get("dry_run"):
            route.continue_()
        else:
            route.fulfill(json={"plan": [], "refused": None, "done": False})

    console.page.route("**/remove", answer)
    console.press("remove-node?")
    console.dialog().locator(".plan").wait_for()
    console.dialog().get_by_role("textbox").fill(f"node {NEW}")
    console.press("remove-node")
    console.sees("it is removed, if this stays open")
    console.press("cancel")
    console.sees(f"The copies of node {NEW} go on to move.")
    console.page.unroute("**/remove")


def _remove(console: Console, seen: Seen) -> None:
    console.open(f"/nodes/{NEW}")
    console.press("demote-node?")
    console.does("demote-node", plan=f"take the vote of node {NEW}")
    seen.until("its vote", lambda: seen.is_voter(NEW), False)
    _leave_while_it_moves(console)
    console.press("remove-node?")
    console.sees("copy replicas of")
    console.does("remove-node", typed=f"node {NEW}", plan=f"remove node {NEW} from the cluster")
    console.sees(f"Node {NEW} leaves the cluster.")
    seen.until("the fourth node", lambda: seen.node(NEW), None)
    assert NEW not in seen.partitions(HEAVY)[0]
    console.page.get_by_role("heading", name="Nodes").wait_for()
    console.page.locator(f"tr[data-key='{NEW}']").wait_for(state="detached")
    seen.cluster.forget(NEW)
