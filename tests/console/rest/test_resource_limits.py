"""Connections, bodies and threads of the HTTP port are divided between clients: no client can lock out another."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from chronik.console.connection import HttpLimits
from chronik.console.http import BODY_BYTES_MAX
from chronik.console.listener import HttpListener
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient, ApiResponse, basic_auth
from tests.console.rest.conftest import PASSWORD, log_in_as

DEADLINE_SECONDS = 60.0
SMALL_BODY_BYTES = HttpLimits().unauthenticated_body_bytes
BODIES_BYTES = HttpLimits().bodies_bytes
FILLING_BODIES = [*[BODY_BYTES_MAX] * (BODIES_BYTES // BODY_BYTES_MAX), BODIES_BYTES % BODY_BYTES_MAX]
"""Sizes of bodies that exhaust the body budget."""


def connected(node: AuthorizingNode, source: str) -> socket.socket:
    host, _, port = node.http.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS, source_address=(source, 0))


def listener_of(node: AuthorizingNode) -> HttpListener:
    assert node._node.http is not None
    assert node._node.http._side is not None
    (listener,) = node._node.http._side._listeners
    return listener


def log_in_from(node: AuthorizingNode, source: str, password: str = PASSWORD, user: str = "alice") -> ApiResponse:
    host, _, port = node.http.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=DEADLINE_SECONDS, source_address=(source, 0))
    body = json.dumps({"username": user, "password": password})
    try:
        connection.request("POST", "/api/v1/login", body, {"content-type": "application/json"})
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return ApiResponse(response.status, headers, response.read())
    finally:
        connection.close()


def head_of(size: int, **headers: str) -> bytes:
    lines = [
        "POST /api/v1/topics/uploaded/messages HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {size}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def status_line(connection: socket.socket) -> bytes:
    return connection.makefile("rb").readline().strip()


def test_declared_body_sizes_of_idle_connections_do_not_block_logins(node: AuthorizingNode) -> None:
    with ExitStack() as stack:
        for size in FILLING_BODIES:
            idle = stack.enter_context(connected(node, "127.0.0.2"))
            idle.sendall(head_of(size).replace(b"/topics/uploaded/messages", b"/login"))
        assert FILLING_BODIES
        for _ in range(3):
            assert log_in_from(node, "127.0.0.4").status == 200


def test_large_body_without_a_login_is_rejected_before_it_is_read(node: AuthorizingNode) -> None:
    with connected(node, "127.0.0.2") as connection:
        connection.sendall(head_of(BODY_BYTES_MAX))
        assert status_line(connection) == b"HTTP/1.1 401 Unauthorized"
    with connected(node, "127.0.0.2") as connection:
        connection.sendall(head_of(SMALL_BODY_BYTES + 1).replace(b"/topics/uploaded/messages", b"/login"))
        assert status_line(connection) == b"HTTP/1.1 413 Request Entity Too Large"
    with connected(node, "127.0.0.2") as connection:
        connection.sendall(head_of(SMALL_BODY_BYTES).replace(b"/topics/uploaded/messages", b"/login"))
        connection.sendall(b"x" * SMALL_BODY_BYTES)
        assert status_line(connection) == b"HTTP/1.1 400 Bad Request"


def test_large_body_is_requested_after_authentication(node: AuthorizingNode, root: ApiClient) -> None:
    root.post("/topics", {"name": "uploaded", "partitions": 1})
    body = json.dumps({"value": "x" * 100_000}).encode()
    with connected(node, "127.0.0.1") as connection:
        connection.sendall(head_of(len(body), Expect="100-continue"))
        assert status_line(connection) == b"HTTP/1.1 401 Unauthorized", "without 100 Continue"
    with connected(node, "127.0.0.1") as connection:
        connection.sendall(head_of(len(body), Expect="100-continue", Cookie=root.cookie))
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert status_line(connection) == b"HTTP/1.1 201 Created"


def test_unfinished_uploads_of_one_account_do_not_block_others(node: AuthorizingNode, root: ApiClient) -> None:
    root.post("/topics", {"name": "uploaded", "partitions": 1})
    mallory = log_in_as(node, "mallory").cookie
    with ExitStack() as stack:
        for size in FILLING_BODIES:
            upload = stack.enter_context(connected(node, "127.0.0.2"))
            upload.sendall(head_of(size, Cookie=mallory))
            upload.sendall(b"x" * (size - 1))
        node.wait_until(lambda: listener_of(node).body_budget.bytes > BODIES_BYTES - 100)
        assert root.post("/topics/uploaded/messages", {"value": "x" * 900_000}).status == 201
        assert log_in_from(node, "127.0.0.4").status == 200
    node.wait_until(lambda: listener_of(node).body_budget.bytes == 0)


@contextmanager
def overview(node: AuthorizingNode, browser: ApiClient) -> Iterator[http.client.HTTPResponse]:
    connection, response = browser.open_response("GET", "/stream", None, {})
    try:
        assert response.status == 200
        yield response
    finally:
        response.close()
        connection.close()


def test_idle_connections_of_other_address_do_not_end_stream(node: AuthorizingNode, root: ApiClient) -> None:
    connections_max = listener_of(node).limits.connections
    with ExitStack() as stack:
        response = stack.enter_context(overview(node, root))
        assert response.readline() == b"event: overview\n"
        for _ in range(connections_max + 50):
            stack.enter_context(connected(node, "127.0.0.2"))
        node.wait_until(lambda: listener_of(node).connection_count == connections_max)
        seen = 0
        while seen < 2:
            line = response.readline()
            assert line, "the stream has ended"
            seen += line == b"event: overview\n"
        assert log_in_from(node, "127.0.0.3").status == 200


@pytest.mark.slow
def test_logins_succeed_while_120_addresses_guess_passwords(node: AuthorizingNode) -> None:
    """Every address keeps several guesses in flight, so all slots are taken all the time."""
    stop = threading.Event()
    sent = 0

    def attack(first: int) -> None:
        """Keep five connections of each of 20 addresses busy with guesses, and replace those that end."""
        nonlocal sent
        addresses = [f"127.0.1.{first + number}" for number in range(20)]
        body = json.dumps({"username": "alice", "password": "wrong"}).encode()
        head = b"POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        guess = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        open_connections: dict[str, list[socket.socket]] = {address: [] for address in addresses}
        while not stop.is_set():
            for address, connections in open_connections.items():
                connection = connected(node, address)
                connection.sendall(guess)
                connections.append(connection)
                sent += 1
                if len(connections) > 5:
                    connections.pop(0).close()
                if stop.is_set():
                    break
        for connections in open_connections.values():
            for connection in connections:
                connection.close()

    attackers = [threading.Thread(target=attack, args=(1 + 20 * number,)) for number in range(6)]
    for each in attackers:
        each.start()
    try:
        node.wait_until(lambda: sent > 600)
        statuses: list[int] = []
        started = time.monotonic()
        while time.monotonic() - started < 5.0 or len(statuses) < 5:
            statuses.append(log_in_from(node, "127.0.0.9", user="mallory").status)
    finally:
        stop.set()
        for each in attackers:
            each.join()
    assert statuses == [200] * len(statuses), f"{len(statuses)} logins during {sent} guesses"


def test_basic_authentication_also_authorizes_a_large_body(node: AuthorizingNode, root: ApiClient) -> None:
    root.post("/topics", {"name": "uploaded", "partitions": 1})
    script = ApiClient(node.http, authorization=basic_auth("root", PASSWORD))
    assert script.post("/topics/uploaded/messages", {"value": "x" * 900_000}).status == 201
