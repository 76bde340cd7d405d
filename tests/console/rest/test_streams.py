"""Event streams: they end when the client disconnects, are limited, and do not delay shutdown."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chronik.admin.users import create_first_user_command
from chronik.client.cluster import ClusterClient
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.console.rest.application import RestApplication
from chronik.console.rest.operations.searching import TAIL_MESSAGES_MAX
from chronik.console.rest.streams import STREAMS_MAX, STREAMS_PER_ACCOUNT_MAX
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient
from tests.console.rest.conftest import PASSWORD, log_in_as

DEADLINE_SECONDS = 60.0


def application_of(node: AuthorizingNode) -> RestApplication:
    assert node._node.http is not None
    assert node._node.http._side is not None
    found = node._node.http._side._applications._console
    assert found is not None
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def topic(root: ApiClient) -> str:
    root.post("/topics", {"name": "streamed", "partitions": 1})
    return "streamed"


def open_stream(browser: ApiClient, path: str) -> Any:
    """Open a stream and return its connection and response."""
    connection, response = browser.open_response("GET", path, None, {})
    assert response.status == 200
    return connection, response


def test_tail_streams_messages_and_ends_on_disconnect(node: AuthorizingNode, root: ApiClient, topic: str) -> None:
    connection, response = open_stream(root, f"/topics/{topic}/tail")
    assert root.post(f"/topics/{topic}/messages", {"value": "x"}).status == 201
    assert response.readline() == b"event: message\n"
    response.close()
    connection.close()
    wait_until(lambda: not application_of(node).streams._contexts)


def test_streams_are_limited_per_account_and_in_total(
    node: AuthorizingNode, root: ApiClient, mallory: ApiClient, topic: str
) -> None:
    streams = application_of(node).streams
    open_streams = [open_stream(root, f"/topics/{topic}/tail") for _ in range(STREAMS_PER_ACCOUNT_MAX)]
    try:
        assert root.get(f"/topics/{topic}/tail").status == 429
        assert root.get("/topics").status == 200
        assert mallory.get(f"/topics/{topic}/tail").status == 403, "not 429"
        assert len(streams._contexts) == STREAMS_PER_ACCOUNT_MAX
        others: dict[Any, Any] = {object(): number for number in range(STREAMS_MAX - STREAMS_PER_ACCOUNT_MAX)}
        streams._contexts |= others
        assert mallory.get(f"/topics/{topic}/tail").status == 429
        for each in others:
            del streams._contexts[each]
    finally:
        for connection, response in open_streams:
            response.close()
            connection.close()
    wait_until(lambda: not application_of(node).streams._contexts)
    assert root.first_event(f"/topics/{topic}/search?text=x").status == 200


def test_search_respects_limits(root: ApiClient) -> None:
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


def test_tail_that_cannot_keep_up_reports_skipped_messages(node: AuthorizingNode, root: ApiClient, topic: str) -> None:
    total = 3 * TAIL_MESSAGES_MAX
    records = [OutgoingRecord(b"%d" % number) for number in range(total)]
    connection, response = open_stream(root, f"/topics/{topic}/tail")
    with node.all_permitted(), ClusterClient(node.bootstrap) as cluster:
        Producer(cluster).send(topic, records)
    message_count, skipped = 0, 0
    while message_count + skipped < total:
        name, data = response.readline(), response.readline()
        message_count += name == b"event: message\n"
        if name == b"event: skipped\n":
            skipped += json.loads(data[6:])["count"]
        response.readline()
    assert message_count == TAIL_MESSAGES_MAX
    response.close()
    connection.close()


def test_streams_of_one_principal_share_events(node: AuthorizingNode, root: ApiClient) -> None:
    tabs = [open_stream(root, "/stream") for _ in range(3)]
    try:
        events = [[response.readline() for _ in range(2)] for _, response in tabs]
        assert events[0] == events[1] == events[2], "the event is produced once"
        assert len(application_of(node).shared_state["tickers"]) == 1
    finally:
        for connection, response in tabs:
            response.close()
            connection.close()
    wait_until(lambda: not application_of(node).shared_state["tickers"])


def test_node_stops_with_open_streams(tmp_path: Path) -> None:
    configs: dict[str, Any] = {"super.users": "User:root"}
    node = AuthorizingNode(tmp_path, "127.0.0.1:0", **configs)
    try:
        node.propose(create_first_user_command("root", PASSWORD))
        root = log_in_as(node, "root")
        root.post("/topics", {"name": "t", "partitions": 1})
        open_streams = [open_stream(root, path) for path in ("/topics/t/tail", "/stream")]
        started = time.monotonic()
    finally:
        node.close()
    assert time.monotonic() - started < 30
    for connection, response in open_streams:
        response.close()
        connection.close()


def test_body_received_byte_by_byte_after_100_continue(node: AuthorizingNode, root: ApiClient) -> None:
    body = b'{"username": "root", "password": "wrong"}'
    head = "POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}"
    with socket.create_connection(node.http.split(":"), timeout=DEADLINE_SECONDS) as peer:  # type: ignore[arg-type]
        peer.sendall(f"{head}\r\nExpect: 100-continue\r\n\r\n".encode())
        assert peer.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        for byte in body:
            peer.sendall(bytes([byte]))
        response = peer.recv(10_000)
        assert response.startswith(b"HTTP/1.1 401 ")
        peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert peer.recv(10_000).startswith(b"HTTP/1.1 200 "), "the next request starts after the body"
    log_in_as(node, "root")
