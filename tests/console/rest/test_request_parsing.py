"""Malformed requests: the HTTP server rejects them without a server error."""

from __future__ import annotations

import logging
import socket

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests import run_size
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient
from tests.console.rest.conftest import PASSWORD, log_in_as

DEADLINE_SECONDS = 60.0
EXAMPLES = run_size.sized(300, 20_000)

FRAGMENTS = [
    *("http://[", "http://[::1", "http://]", "http://a:b:c", "http://x:99999999", "http://\xff", "//[", "null", "["),
    *("%", "%f", "%ff", "%00", "%zz", "%5b", "%2F", "%2e%2e", "%ud800", "?", "#", ";", "=", "&", ",", '"', "'", "\\"),
    *("[::1", "]", ":", "::", "1e9", "-1", "\x80", "\xff", "\xc3\xa9", "x" * 300, "a=b", "chronik_session", "/", "//"),
    *("Bearer", "Basic", "Basic =", "Basic %%%", "Basic \xff", "bearer \xff\xfe", "for=[::1", 'for="[', 'W/"', "*"),
]
texts = st.lists(st.sampled_from(FRAGMENTS) | st.text(st.characters(max_codepoint=255), max_size=8), max_size=5).map(
    "".join
)
HEADERS = (
    "Host",
    "Origin",
    "Referer",
    "Forwarded",
    "X-Forwarded-For",
    "Cookie",
    "Authorization",
    "Content-Type",
    "Content-Length",
    "Expect",
    "Connection",
    "If-None-Match",
    "Accept",
    "Sec-Fetch-Site",
    "Transfer-Encoding",
    "Last-Event-ID",
)
PATHS = ("/", "/ui/", "/healthz", "/status", "/status/groups/", "/api/v1/session", "/api/v1/topics", "/api/v1/nodes/",
         "/registry", "/registry/subjects", "/registry/schemas/ids/", "/registry/contexts/.a/config")  # fmt: skip
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


@pytest.fixture
def session(node: AuthorizingNode) -> str:
    return log_in_as(node, "root").cookie


def status_of(node: AuthorizingNode, head: str) -> int | None:
    """Send a request and return the response's status, or None if the server closes the connection without one."""
    host, _, port = node.http.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(head.encode("latin-1"))
        connection.shutdown(socket.SHUT_WR)
        line = connection.makefile("rb").readline()
    return int(line.split(b" ")[1]) if line else None


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]


@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)
@given(
    method=st.sampled_from(METHODS),
    path=st.sampled_from(PATHS),
    suffix=texts,
    query=texts,
    headers=st.lists(st.tuples(st.sampled_from(HEADERS), texts), max_size=4),
)
@example("GET", "/api/v1/session", "", "", [("Origin", "http://[")])
@example("GET", "/status", "", "", [("Authorization", "Basic \xff")])
@example("GET", "/status/groups/", "%ff%00", "", [])
def test_malformed_requests_never_cause_a_server_error(
    node: AuthorizingNode,
    session: str,
    caplog: pytest.LogCaptureFixture,
    method: str,
    path: str,
    suffix: str,
    query: str,
    headers: list[tuple[str, str]],
) -> None:
    target = path + suffix.replace(" ", "+") + (f"?{query.replace(' ', '+')}" if query else "")
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    if all(name != "Host" for name, _ in headers):
        lines.append("Host: localhost")
    if all(name != "Cookie" for name, _ in headers):
        lines.append(f"Cookie: {session}")
    lines.append("Connection: close")
    caplog.clear()
    with caplog.at_level(logging.INFO):
        status = status_of(node, "\r\n".join(lines) + "\r\n\r\n")
    assert failures(caplog) == [], lines
    assert status is None or status < 500, (status, lines)


def test_login_with_malformed_origin_is_rejected(node: AuthorizingNode) -> None:
    browser = ApiClient(node.http)
    credentials = {"username": "root", "password": PASSWORD}
    assert browser.post("/login", credentials, origin="http://[").status == 403
