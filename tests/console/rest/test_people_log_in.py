"""Who asks over HTTP: sessions begin with a password, and end; wrong passwords are told apart from nothing."""

from __future__ import annotations

import logging
import re
import time

import pytest

from chronik.console.rest.sessions import (
    IDLE_SECONDS_MAX,
    SECONDS_MAX,
    SESSIONS_MAX,
    SESSIONS_PER_USER_MAX,
    Sessions,
    set_cookie,
    token_in,
)
from chronik.principals import Principal
from tests.api.guarded import GuardedNode
from tests.console.rest.asking import Browser, basic
from tests.console.rest.conftest import PASSWORD, logged_in

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")


def test_a_login_sets_a_cookie_that_no_script_and_no_other_site_has(node: GuardedNode) -> None:
    browser = Browser(node.http)
    before = browser.get("/session").json
    assert before["principal"] is None
    assert before["login_required"]
    assert before["login_with"] == "password"
    assert before["version"] is None, "strangers are not told"
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


def test_over_tls_the_cookie_is_secure() -> None:
    assert "; Secure" in set_cookie("x", is_encrypted=True)[1]
    assert "; Secure" not in set_cookie("x", is_encrypted=False)[1]


@pytest.mark.parametrize(
    ("username", "password"), [("alice", "wrong"), ("nobody", PASSWORD), ("", ""), ("alice", ""), ("a\0b", "c\0d")]
)
def test_wrong_passwords_and_unknown_users_are_told_the_same(
    node: GuardedNode, caplog: pytest.LogCaptureFixture, username: str, password: str
) -> None:
    browser = Browser(node.http)
    with caplog.at_level(logging.INFO, "chronik.audit"):
        answer = browser.log_in(username, password)
    assert answer.status == 401
    assert answer.json["error"] == "the name or the password is wrong"
    assert "set-cookie" not in answer.headers
    assert answer.headers["www-authenticate"] == "Chronik-Session", "Basic would open a window in browsers"
    # Not in its text: a Spark in the same process has its own way to write that.
    assert any('"event": "login refused"' in message for message in caplog.messages)
    assert password == "" or password not in caplog.text
    logged_in(node, "alice")


def test_scripts_show_their_password_with_each_request(node: GuardedNode) -> None:
    script = Browser(node.http)
    assert script.get("/topics", authorization=basic("alice", PASSWORD)).status == 200
    assert script.get("/topics", authorization=basic("alice", "wrong")).status == 401
    assert script.get("/topics", authorization="Basic %%%").status == 401
    assert script.get("/topics", authorization="Bearer x").status == 401
    logged_in(node, "alice")


def test_a_session_ends_with_the_password_that_it_began_with(node: GuardedNode, root: Browser) -> None:
    assert root.post("/users", {"name": "dora", "password": PASSWORD, "iterations": 4096}).status == 201
    dora = logged_in(node, "dora")
    assert dora.get("/topics").status == 200
    assert root.post("/users", {"name": "dora", "password": "another", "iterations": 4096}).status == 201
    assert dora.get("/topics").status == 401
    assert dora.log_in("dora", "another").status == 200
    assert root.ask("DELETE", "/users/dora").status == 200
    assert dora.get("/topics").status == 401


@pytest.mark.parametrize("page", ["/status", "/metrics", "/readyz", "/status/groups/g"])
def test_pages_need_a_login_with_the_right_to_describe_the_cluster(
    node: GuardedNode, root: Browser, mallory: Browser, page: str
) -> None:
    assert Browser(node.http).get("/" + page).status == 401
    assert mallory.get("/" + page).status == 403
    assert root.get("/" + page).status in (200, 404)
    assert Browser(node.http).get("//healthz").status == 200


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_sessions_end_by_themselves() -> None:
    clock = Clock()
    sessions = Sessions(clock, lambda principal: 0)
    token = sessions.begin(ALICE)
    clock.now = IDLE_SECONDS_MAX
    assert sessions.find(token) == ALICE
    clock.now = 2 * IDLE_SECONDS_MAX
    assert sessions.find(token) == ALICE, "it was used"
    clock.now = 3 * IDLE_SECONDS_MAX + 1
    assert sessions.find(token) is None
    token = sessions.begin(ALICE)
    end = clock.now + SECONDS_MAX
    while clock.now + IDLE_SECONDS_MAX < end:
        clock.now += IDLE_SECONDS_MAX
        assert sessions.find(token) == ALICE
    clock.now = end + 1
    assert sessions.find(token) is None


def test_there_are_so_many_sessions_and_no_more() -> None:
    sessions = Sessions(Clock(), lambda principal: 0)
    of_alice = [sessions.begin(ALICE) for _ in range(SESSIONS_PER_USER_MAX + 1)]
    assert sessions.find(of_alice[0]) is None, "the one that was silent longest"
    assert sessions.find(of_alice[1]) == ALICE
    others = [sessions.begin(Principal("User", f"u{number}")) for number in range(SESSIONS_MAX - SESSIONS_PER_USER_MAX)]
    assert sessions.find(of_alice[1]) == ALICE
    sessions.begin(BOB)
    assert sessions.find(of_alice[2]) is None
    assert sessions.find(others[0]) is not None


def test_a_session_is_found_among_other_cookies() -> None:
    assert token_in("a=b; chronik_session=xyz; c=d") == "xyz"
    assert token_in("a=b; xchronik_session=xyz") == ""
    assert token_in("") == ""


def test_login_of_an_attacker_does_not_speed_up_guesses_at_another_account(node: GuardedNode) -> None:
    browser, guesses, began = Browser(node.http), 0, time.monotonic()
    while time.monotonic() - began < 2.0:
        assert browser.log_in("mallory", PASSWORD).status == 200
        assert browser.log_in("alice", f"guess {guesses}").status == 401
        guesses += 1
    assert guesses <= 8
