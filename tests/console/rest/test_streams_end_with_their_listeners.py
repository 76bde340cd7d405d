"""What goes on and on: it ends when nobody listens, there is only so much of it, and no node waits for it to stop."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chronik.admin.users import first_user
from chronik.client.cluster import Cluster
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.console.rest.application import RestApplication
from chronik.console.rest.doing.searching import TAIL_MESSAGES_MAX
from chronik.console.rest.streams import STREAMS_MAX, STREAMS_PER_ACCOUNT_MAX
from tests.api.guarded import GuardedNode
from tests.console.rest.asking import Browser
from tests.console.rest.conftest import PASSWORD, logged_in

DEADLINE_SECONDS = 60.0


def application_of(node: GuardedNode) -> RestApplication:
    assert node._node.http is not None
    assert node._node.http._side is not None
    assert node._node.http._side._application is not None
    found = node._node.http._side._application._loaded
    assert found is not None
    return found


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def topic(root: Browser) -> str:
    root.post("/topics", {"name": "streamed", "partitions": 1})
    return "streamed"


def listening(browser: Browser, path: str) -> Any:
    """Returns a connection on which events come."""
    connection, response = browser._begin("GET", path, None, {})
    assert response.status == 200
    return connection, response


def test_a_tail_tells_of_messages_as_they_come_and_ends_with_its_listener(
    node: GuardedNode, root: Browser, topic: str
) -> None:
    connection, response = listening(root, f"/topics/{topic}/tail")
    assert root.post(f"/topics/{topic}/messages", {"value": "x"}).status == 201
    assert response.readline() == b"event: message\n"
    response.close()
    connection.close()
    wait_until(lambda: not application_of(node).streams._calls)


def test_account_may_have_so_many_streams_and_leaves_the_rest_to_others(
    node: GuardedNode, root: Browser, mallory: Browser, topic: str
) -> None:
    streams = application_of(node).streams
    open_ones = [listening(root, f"/topics/{topic}/tail") for _ in range(STREAMS_PER_ACCOUNT_MAX)]
    try:
        assert root.get(f"/topics/{topic}/tail").status == 429
        assert root.get("/topics").status == 200
        assert mallory.get(f"/topics/{topic}/tail").status == 403, "not 429"
        assert len(streams._calls) == STREAMS_PER_ACCOUNT_MAX
        others: dict[Any, Any] = {object(): number for number in range(STREAMS_MAX - STREAMS_PER_ACCOUNT_MAX)}
        streams._calls |= others
        assert mallory.get(f"/topics/{topic}/tail").status == 429
        for each in others:
            del streams._calls[each]
    finally:
        for connection, response in open_ones:
            response.close()
            connection.close()
    wait_until(lambda: not application_of(node).streams._calls)
    assert root.first_event(f"/topics/{topic}/search?text=x").status == 200


def test_a_search_keeps_its_budgets(root: Browser) -> None:
    root.post("/topics", {"name": "searched", "partitions": 2})
    for number in range(12):
        assert root.post("/topics/searched/messages", {"key": f"k{number}", "value": f"needle {number}"}).status == 201

    def search(query: str) -> tuple[int, dict[str, Any]]:
        events = list(root.events(f"/topics/searched/search?{query}"))
        assert [name for name, _ in events][-2:] == ["progress", "end"]
        return sum(name == "match" for name, _ in events), events[-1][1]

    assert search("text=needle") == (12, {"why": "end", "scanned": 12, "matches": 12, "error": None})
    assert search("text=needle%2011") == (1, {"why": "end", "scanned": 12, "matches": 1, "error": None})
    assert search("text=k7") == (1, {"why": "end", "scanned": 12, "matches": 1, "error": None})
    assert search("text=nothing") == (0, {"why": "end", "scanned": 12, "matches": 0, "error": None})
    assert search("text=needle&max_matches=3")[1]["why"] == "matches"
    assert search("text=nothing&max_messages=1")[1]["why"] == "messages"
    assert search("text=needle&from=end")[1]["scanned"] == 0
    assert search("text=needle&until=start")[1]["scanned"] == 0


def test_a_tail_that_cannot_keep_up_says_what_it_leaves_out(node: GuardedNode, root: Browser, topic: str) -> None:
    made = 3 * TAIL_MESSAGES_MAX
    records = [OutgoingRecord(b"%d" % number) for number in range(made)]
    connection, response = listening(root, f"/topics/{topic}/tail")
    with node.all_allowed(), Cluster(node.bootstrap) as cluster:
        Producer(cluster).send(topic, records)
    shown, skipped = 0, 0
    while shown + skipped < made:
        name, data = response.readline(), response.readline()
        shown += name == b"event: message\n"
        if name == b"event: skipped\n":
            skipped += json.loads(data[6:])["count"]
        response.readline()
    assert shown == TAIL_MESSAGES_MAX
    response.close()
    connection.close()


def test_all_tabs_of_one_principal_are_told_the_same(node: GuardedNode, root: Browser) -> None:
    tabs = [listening(root, "/stream") for _ in range(3)]
    try:
        told = [[response.readline() for _ in range(2)] for _, response in tabs]
        assert told[0] == told[1] == told[2], "it was made once"
        assert len(application_of(node).kept["tickers"]) == 1
    finally:
        for connection, response in tabs:
            response.close()
            connection.close()
    wait_until(lambda: not application_of(node).kept["tickers"])


def test_a_node_stops_at_once_whoever_listens(tmp_path: Path) -> None:
    configs: dict[str, Any] = {"super.users": "User:root"}
    node = GuardedNode(tmp_path, "127.0.0.1:0", **configs)
    try:
        node.propose(first_user("root", PASSWORD))
        root = logged_in(node, "root")
        root.post("/topics", {"name": "t", "partitions": 1})
        open_ones = [listening(root, path) for path in ("/topics/t/tail", "/stream")]
        began = time.monotonic()
    finally:
        node.close()
    assert time.monotonic() - began < 30
    for connection, response in open_ones:
        response.close()
        connection.close()


def test_a_body_may_come_in_pieces_and_is_asked_for(node: GuardedNode, root: Browser) -> None:
    body = b'{"username": "root", "password": "wrong"}'
    head = "POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}"
    with socket.create_connection(node.http.split(":"), timeout=DEADLINE_SECONDS) as peer:  # type: ignore[arg-type]
        peer.sendall(f"{head}\r\nExpect: 100-continue\r\n\r\n".encode())
        assert peer.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        for byte in body:
            peer.sendall(bytes([byte]))
        answer = peer.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 401 ")
        peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert peer.recv(10_000).startswith(b"HTTP/1.1 200 "), "the next request begins behind the body"
    logged_in(node, "root")
