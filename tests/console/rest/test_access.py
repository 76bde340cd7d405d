"""Responses in progress end when their session, their user's credentials or their permission ends."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.console.rest import authentication
from chronik.console.rest.application import RestApplication
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient, basic_auth
from tests.console.rest.conftest import PASSWORD, log_in_as
from tests.console.rest.operation_cases import PIPELINE, TOPIC, prepare_pipeline

DEADLINE_SECONDS = 30.0
ENDS_WITHIN_SECONDS = 1.0
WATCHED = "watched"
READ: dict[str, Any] = {"resource": "topic", "name": WATCHED, "principal": "User:watcher", "operation": "read"}


def application_of(node: AuthorizingNode) -> RestApplication:
    assert node._node.http is not None
    assert node._node.http._side is not None
    found = node._node.http._side._applications._console
    assert found is not None
    return found


@pytest.fixture
def watcher(node: AuthorizingNode, root: ApiClient) -> Iterator[ApiClient]:
    """A user with the Read permission on one topic only."""
    root.post("/topics", {"name": WATCHED, "partitions": 1})
    assert root.post("/users", {"name": "watcher", "password": PASSWORD, "iterations": 4096}).status == 201
    assert root.post("/acls", {"acls": [READ]}).status == 201
    yield log_in_as(node, "watcher")
    root.send("DELETE", "/users/watcher")
    root.post("/acls/delete", {"acls": [READ, READ | {"permission": "deny"}]})
    node.wait_until(lambda: not len(application_of(node).authenticator._watches))


def test_revoked_permission_aborts_an_export_without_a_traceback(
    node: AuthorizingNode, root: ApiClient, watcher: ApiClient, caplog: pytest.LogCaptureFixture
) -> None:
    with node.all_permitted(), ClusterClient(node.bootstrap) as client:
        Producer(client).send(WATCHED, [OutgoingRecord(os.urandom(300_000).hex().encode()) for _ in range(30)])
    connection, response = watcher.open_response("GET", f"/topics/{WATCHED}/export?limit=1000", None, {})
    try:
        assert response.read(1000)
        assert root.post("/acls/delete", {"acls": [READ]}).status == 200
        with pytest.raises((http.client.HTTPException, OSError)):
            response.read()
    finally:
        connection.close()
    [record] = [each for each in caplog.records if each.name == "chronik.console" and "aborted" in each.getMessage()]
    assert record.exc_info is None
    assert "User:watcher is no longer authorized: READ on TOPIC watched" in record.getMessage()


class Stream:
    """A stream of events that is read in a thread."""

    def __init__(self, browser: ApiClient, path: str) -> None:
        self._connection, self._response = browser.open_response("GET", path, None, {})
        assert self._response.status == 200, self._response.read()
        self.events: list[tuple[str, Any]] = []
        self.ended_at: float | None = None
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        name = ""
        while line := self._response.readline():
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                self.events.append((name, json.loads(line[6:])))
        self.ended_at = time.monotonic()

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(self.events) < count:
            assert time.monotonic() < deadline, self.events
            time.sleep(0.005)

    def end(self) -> float:
        """Wait until the node ends the stream, and return when that was."""
        self._thread.join(DEADLINE_SECONDS)
        assert self.ended_at is not None, f"still open after {DEADLINE_SECONDS} s: {self.events}"
        return self.ended_at

    def close(self) -> None:
        with suppress(OSError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(DEADLINE_SECONDS)
        self._response.close()
        self._connection.close()


@contextmanager
def stream(browser: ApiClient, path: str) -> Iterator[Stream]:
    opened = Stream(browser, path)
    try:
        yield opened
    finally:
        opened.close()


def log_out(root: ApiClient, watcher: ApiClient) -> None:
    cookie = watcher.cookie
    assert watcher.post("/logout").status == 200
    watcher.cookie = cookie


def change_password(root: ApiClient, watcher: ApiClient) -> None:
    assert root.post("/users", {"name": "watcher", "password": "another", "iterations": 4096}).status == 201


def delete_user(root: ApiClient, watcher: ApiClient) -> None:
    assert root.send("DELETE", "/users/watcher").status == 200


def revoke_permission(root: ApiClient, watcher: ApiClient) -> None:
    assert root.post("/acls/delete", {"acls": [READ]}).status == 200


def deny_permission(root: ApiClient, watcher: ApiClient) -> None:
    assert root.post("/acls", {"acls": [READ | {"permission": "deny"}]}).status == 201


END_OF_SESSION = [log_out, change_password, delete_user]
Ends = Callable[[ApiClient, ApiClient], None]


@pytest.mark.parametrize("end_access", [*END_OF_SESSION, revoke_permission, deny_permission])
def test_tail_ends_within_a_second_of_revocation(root: ApiClient, watcher: ApiClient, end_access: Ends) -> None:
    with stream(watcher, f"/topics/{WATCHED}/tail") as tail:
        assert root.post(f"/topics/{WATCHED}/messages", {"value": "before"}).status == 201
        tail.wait_for(1)
        end_access(root, watcher)
        ended = time.monotonic()
        assert root.post(f"/topics/{WATCHED}/messages", {"value": "after"}).status == 201
        assert tail.end() - ended < ENDS_WITHIN_SECONDS
        assert [name for name, _ in tail.events] == ["message", "error"]
        assert tail.events[0][1]["value"]["text"] == "before"


@pytest.mark.parametrize("end_access", [change_password, delete_user, revoke_permission])
def test_tail_ends_when_its_basic_credentials_are_revoked(
    node: AuthorizingNode, root: ApiClient, watcher: ApiClient, end_access: Ends
) -> None:
    script = ApiClient(node.http, authorization=basic_auth("watcher", PASSWORD))
    with stream(script, f"/topics/{WATCHED}/tail") as tail:
        end_access(root, watcher)
        ended = time.monotonic()
        assert tail.end() - ended < ENDS_WITHIN_SECONDS
        assert [name for name, _ in tail.events] == ["error"]


@pytest.mark.parametrize("end_access", END_OF_SESSION)
def test_overview_ends_within_a_second_of_session_end(root: ApiClient, watcher: ApiClient, end_access: Ends) -> None:
    with stream(watcher, "/stream") as overview:
        overview.wait_for(1)
        end_access(root, watcher)
        ended = time.monotonic()
        assert overview.end() - ended < ENDS_WITHIN_SECONDS
        assert overview.events[-1][0] == "error"


def test_overview_ends_when_describe_permission_is_revoked(root: ApiClient, watcher: ApiClient) -> None:
    describe = {"resource": "cluster", "name": "kafka-cluster", "principal": "User:watcher", "operation": "describe"}
    assert root.post("/acls", {"acls": [describe]}).status == 201
    with stream(watcher, "/stream") as overview:
        overview.wait_for(1)
        assert overview.events[0][1]["cluster"] is not None
        root.post("/acls/delete", {"acls": [describe]})
        ended = time.monotonic()
        assert overview.end() - ended < ENDS_WITHIN_SECONDS
    with stream(watcher, "/stream") as overview:
        overview.wait_for(1)
        assert overview.events[0][1]["cluster"] is None
        log_out(root, watcher)
        overview.end()


def test_search_is_rejected_after_session_ends(root: ApiClient, watcher: ApiClient) -> None:
    for number in range(50):
        root.post(f"/topics/{WATCHED}/messages", {"value": f"message {number}"})
    with stream(watcher, f"/topics/{WATCHED}/search?text=nothing&max_seconds=60&from=start&until=end") as search:
        search.end()
        assert search.events[-1][0] == "end", "a finished search is not affected"
    log_out(root, watcher)
    assert watcher.get(f"/topics/{WATCHED}/search?text=x").status == 401


def test_tail_ends_when_its_session_expires(
    node: AuthorizingNode, root: ApiClient, watcher: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "SECONDS_MAX", 2.0)
    started = time.monotonic()
    late = log_in_as(node, "watcher")
    with stream(late, f"/topics/{WATCHED}/tail") as tail:
        ended = tail.end()
        assert 1.5 < ended - started < 2.0 + ENDS_WITHIN_SECONDS + 1.0
        assert [name for name, _ in tail.events] == ["error"]


def test_stream_keeps_session_active(
    node: AuthorizingNode, root: ApiClient, watcher: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stream(watcher, f"/topics/{WATCHED}/tail") as tail:
        monkeypatch.setattr(authentication, "IDLE_SECONDS_MAX", 1.0)
        started = time.monotonic()
        while time.monotonic() - started < 2.5:
            count = len(tail.events)
            root.post(f"/topics/{WATCHED}/messages", {"value": "x"})
            tail.wait_for(count + 1)
        assert {name for name, _ in tail.events} == {"message"}
        log_out(root, watcher)
        tail.end()


@pytest.mark.parametrize("end_access", END_OF_SESSION)
def test_request_waiting_for_driver_ends_with_session(
    node: AuthorizingNode, root: ApiClient, watcher: ApiClient, end_access: Ends
) -> None:
    prepare_pipeline(node, root)
    acls = [READ | {"name": name} for name in (TOPIC, "__chronik_pipelines")]
    assert root.post("/acls", {"acls": acls}).status == 201
    statuses: list[int] = []
    client = ApiClient(node.http)
    client.cookie = watcher.cookie
    request_thread = threading.Thread(
        target=lambda: statuses.append(client.get(f"/pipelines/{PIPELINE}/sample?topic={TOPIC}").status)
    )
    request_thread.start()
    node.wait_until(lambda: bool(node.services.samples._questions))
    end_access(root, watcher)
    ended = time.monotonic()
    request_thread.join(DEADLINE_SECONDS)
    assert statuses == [401]
    assert time.monotonic() - ended < ENDS_WITHIN_SECONDS
    root.post("/acls/delete", {"acls": acls})


def test_streams_of_other_users_continue(node: AuthorizingNode, root: ApiClient, watcher: ApiClient) -> None:
    other = log_in_as(node, "root")
    with stream(other, f"/topics/{WATCHED}/tail") as tail:
        for end_access in (revoke_permission, log_out, delete_user):
            end_access(root, watcher)
        root.post(f"/topics/{WATCHED}/messages", {"value": "x"})
        tail.wait_for(1)
        assert [name for name, _ in tail.events] == ["message"]
        log_out(root, other)
        tail.end()
