"""Login sessions: creation, expiry, limits, and rejection of wrong passwords.

Nodes without an authorizer are open on loopback, or protected by http_token.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from chronik.console.rest.authentication import (
    IDLE_SECONDS_MAX,
    SECONDS_MAX,
    SESSIONS_MAX,
    SESSIONS_PER_USER_MAX,
    LoginSessions,
    build_session_cookie_header,
    parse_session_token,
)
from chronik.principals import Principal
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient, basic_auth
from tests.console.rest.conftest import PASSWORD, log_in_as

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")

TOKEN = "correct-horse"
OPEN: dict[str, Any] = {"authorizer.class.name": ""}


def test_login_sets_http_only_same_site_cookie(node: AuthorizingNode) -> None:
    browser = ApiClient(node.http)
    before = browser.get("/session").json
    assert before["principal"] is None
    assert before["login_required"]
    assert before["login_with"] == "password"
    assert before["version"] is None, "unauthenticated clients do not see the version"
    answer = browser.log_in("alice", PASSWORD)
    assert answer.json["principal"] == "User:alice"
    assert re.fullmatch(
        r"chronik_session=[\w-]{43}; Path=/; HttpOnly; SameSite=Strict", answer.headers["set-cookie"]
    ), answer
    assert browser.get("/session").json["logged_in"]
    assert browser.get("/topics").status == 200
    cookie = browser.cookie
    assert browser.post("/logout").status == 200
    assert browser.get("/topics", cookie=cookie).status == 401


def test_cookie_is_secure_over_tls() -> None:
    scope = "Path=/; HttpOnly; SameSite=Strict"
    assert build_session_cookie_header("x", is_encrypted=True)[1] == f"__Host-chronik_session=x; {scope}; Secure"
    assert build_session_cookie_header("x", is_encrypted=False)[1] == f"chronik_session=x; {scope}"


@pytest.mark.parametrize(
    ("username", "password"), [("alice", "wrong"), ("nobody", PASSWORD), ("", ""), ("alice", ""), ("a\0b", "c\0d")]
)
def test_wrong_password_and_unknown_user_get_same_error(
    node: AuthorizingNode, caplog: pytest.LogCaptureFixture, username: str, password: str
) -> None:
    browser = ApiClient(node.http)
    with caplog.at_level(logging.INFO, "chronik.audit"):
        answer = browser.log_in(username, password)
    assert answer.status == 401
    assert answer.json["error"] == "the user name or the password is wrong"
    assert "set-cookie" not in answer.headers
    assert answer.headers["www-authenticate"] == "Chronik-Session", "Basic would make browsers show a dialog"
    # Not caplog.text: Spark in the same process changes its format.
    assert any('"event": "login refused"' in message for message in caplog.messages)
    assert password == "" or password not in caplog.text
    log_in_as(node, "alice")


def test_basic_authentication_is_accepted(node: AuthorizingNode) -> None:
    script = ApiClient(node.http)
    assert script.get("/topics", authorization=basic_auth("alice", PASSWORD)).status == 200
    assert script.get("/topics", authorization=basic_auth("alice", "wrong")).status == 401
    assert script.get("/topics", authorization="Basic %%%").status == 401
    assert script.get("/topics", authorization="Bearer x").status == 401
    log_in_as(node, "alice")


def test_session_ends_when_password_changes(node: AuthorizingNode, root: ApiClient) -> None:
    assert root.post("/users", {"name": "dora", "password": PASSWORD, "iterations": 4096}).status == 201
    dora = log_in_as(node, "dora")
    assert dora.get("/topics").status == 200
    assert root.post("/users", {"name": "dora", "password": "another", "iterations": 4096}).status == 201
    assert dora.get("/topics").status == 401
    assert dora.log_in("dora", "another").status == 200
    assert root.send("DELETE", "/users/dora").status == 200
    assert dora.get("/topics").status == 401


@pytest.mark.parametrize("page", ["/status", "/metrics", "/readyz", "/status/groups/g"])
def test_status_pages_require_describe_cluster_permission(
    node: AuthorizingNode, root: ApiClient, mallory: ApiClient, page: str
) -> None:
    assert ApiClient(node.http).get("/" + page).status == 401
    assert mallory.get("/" + page).status == 403
    assert root.get("/" + page).status in (200, 404)
    assert ApiClient(node.http).get("//healthz").status == 200


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_session_expires_when_idle_or_too_old() -> None:
    clock = Clock()
    sessions = LoginSessions(clock, lambda principal: 0)
    token = sessions.create(ALICE)
    clock.now = IDLE_SECONDS_MAX
    assert sessions.authenticate(token) == ALICE
    clock.now = 2 * IDLE_SECONDS_MAX
    assert sessions.authenticate(token) == ALICE, "the session was used"
    clock.now = 3 * IDLE_SECONDS_MAX + 1
    assert sessions.authenticate(token) is None
    token = sessions.create(ALICE)
    end = clock.now + SECONDS_MAX
    while clock.now + IDLE_SECONDS_MAX < end:
        clock.now += IDLE_SECONDS_MAX
        assert sessions.authenticate(token) == ALICE
    clock.now = end + 1
    assert sessions.authenticate(token) is None


def test_number_of_sessions_is_limited() -> None:
    sessions = LoginSessions(Clock(), lambda principal: 0)
    alice_tokens = [sessions.create(ALICE) for _ in range(SESSIONS_PER_USER_MAX + 1)]
    assert sessions.authenticate(alice_tokens[0]) is None, "the least recently used session"
    assert sessions.authenticate(alice_tokens[1]) == ALICE
    others = [
        sessions.create(Principal("User", f"u{number}")) for number in range(SESSIONS_MAX - SESSIONS_PER_USER_MAX)
    ]
    assert sessions.authenticate(alice_tokens[1]) == ALICE
    sessions.create(BOB)
    assert sessions.authenticate(alice_tokens[2]) is None
    assert sessions.authenticate(others[0]) is not None


def test_session_token_is_found_among_other_cookies() -> None:
    assert parse_session_token("a=b; chronik_session=xyz; c=d", is_encrypted=False) == "xyz"
    assert parse_session_token("a=b; xchronik_session=xyz", is_encrypted=False) == ""
    assert parse_session_token("", is_encrypted=False) == ""


def test_session_cookie_without_host_prefix_is_rejected_over_tls() -> None:
    both = "chronik_session=planted; __Host-chronik_session=own"
    assert parse_session_token("chronik_session=planted", is_encrypted=True) == ""
    assert parse_session_token(both, is_encrypted=True) == "own"
    assert parse_session_token(both, is_encrypted=False) == "own", "a proxy may terminate TLS"


def test_logout_behind_proxy_with_tls_deletes_the_prefixed_cookie(node: AuthorizingNode) -> None:
    browser = ApiClient(node.http)
    answer = browser.post("/logout", cookie="__Host-chronik_session=expired")
    scope = "Path=/; HttpOnly; SameSite=Strict; Secure; Max-Age=0"
    assert answer.headers["set-cookie"] == f"__Host-chronik_session=; {scope}"


def test_own_login_does_not_speed_up_guesses_for_other_account(node: AuthorizingNode) -> None:
    browser, guesses, started = ApiClient(node.http), 0, time.monotonic()
    while time.monotonic() - started < 2.0:
        assert browser.log_in("mallory", PASSWORD).status == 200
        assert browser.log_in("alice", f"guess {guesses}").status == 401
        guesses += 1
    assert guesses <= 8


@pytest.fixture(scope="module")
def open_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiClient]:
    node = AuthorizingNode(tmp_path_factory.mktemp("open"), "127.0.0.1:0", **OPEN)
    try:
        yield ApiClient(node.http)
    finally:
        node.close()


@pytest.fixture(scope="module")
def closed_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    node = AuthorizingNode(tmp_path_factory.mktemp("closed"), "127.0.0.1:0", http_token=TOKEN, **OPEN)
    try:
        yield node.http
    finally:
        node.close()


def test_loopback_without_token_allows_everything(open_node: ApiClient) -> None:
    session = open_node.get("/session").json
    assert session["principal"] == "User:ANONYMOUS"
    assert (session["login_required"], session["login_with"], session["authorizer"]) == (False, None, False)
    assert open_node.post("/topics", {"name": "t", "partitions": 1}).status == 200
    assert open_node.get("/topics").json["total"] == 1
    assert open_node.get("//status").status == 200
    assert open_node.get("/acls").status == 501, "no authorizer is configured"
    assert open_node.post("/nodes/1/drain").status == 409, "the node is standalone"
    assert open_node.get("/cluster").json["verdict"] == "1 node"


def test_http_token_authenticates(closed_node: str) -> None:
    browser = ApiClient(closed_node)
    assert browser.get("/session").json["login_with"] == "token"
    assert browser.get("/topics").status == 401
    assert browser.get("//status").status == 401
    assert browser.get("//").status == 200, "the login page"
    assert browser.get("/topics", authorization=f"Bearer {TOKEN}").status == 200
    assert browser.log_in("", "wrong").status == 401
    assert browser.log_in("", TOKEN).status == 200
    assert browser.get("/topics").status == 200
    assert browser.post("/topics", {"name": "t", "partitions": 1}).status == 200
