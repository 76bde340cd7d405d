"""The admin API and the console's files over HTTPS, and client certificates instead of a token."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chronik.admin.users import create_first_user_command
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient, basic_auth
from tests.tls.certificates import certificate_authority, client_context, issue_certificate, replace_file

PASSWORD = "correct horse"
TOKEN = "battery-staple"
WITHOUT_USERS: dict[str, Any] = {"authorizer.class.name": ""}

ClientFactory = Callable[..., ApiClient]
"""Create a client, with a client certificate if a subject is given."""


@contextmanager
def serving(folder: Path, **options: Any) -> Iterator[tuple[AuthorizingNode, ClientFactory]]:
    keystore = replace_file(folder / "node.pem", issue_certificate("CN=node").keystore_pem)
    node = AuthorizingNode(folder / "data", "127.0.0.1:0", http_keystore=keystore, **options)

    def create_client(subject: str | None = None) -> ApiClient:
        return ApiClient(node.http, tls=client_context(folder, subject))

    try:
        yield node, create_client
    finally:
        node.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AuthorizingNode, ClientFactory]]:
    with serving(tmp_path_factory.mktemp("tls"), **{"super.users": "User:root"}) as served:
        served[0].propose(create_first_user_command("root", PASSWORD))
        yield served


def test_login_over_tls_sets_secure_cookie(node: tuple[AuthorizingNode, ClientFactory]) -> None:
    root = node[1]()
    answer = root.log_in("root", PASSWORD)
    assert answer.status == 200
    cookie = answer.headers["set-cookie"].split("; ")
    assert cookie[0].startswith("__Host-chronik_session=")
    assert {"Path=/", "Secure", "HttpOnly", "SameSite=Strict"} < set(cookie)
    assert root.get("/topics", cookie=root.cookie.removeprefix("__Host-")).status == 401
    own, other = f"https://{root.address}", "https://evil.example"
    assert root.post("/topics", {"name": "t", "partitions": 1}, origin=other).status == 403
    assert root.post("/topics", {"name": "t", "partitions": 1}, origin=own).status == 200
    assert root.get("/topics").json["total"] == 1
    assert root.first_event("/stream").body.startswith(b"event: overview")
    assert root.post("/logout").status == 200
    assert root.get("/topics").status == 401


def test_basic_authentication_over_tls(node: tuple[AuthorizingNode, ClientFactory]) -> None:
    script = node[1]()
    assert script.get("/nodes", authorization=basic_auth("root", PASSWORD)).json["total"] == 1
    assert script.get("/nodes", authorization=basic_auth("root", "wrong")).status == 401


def test_console_is_served_over_tls(node: tuple[AuthorizingNode, ClientFactory]) -> None:
    page = node[1]().get("//")
    assert page.status == 200
    assert b"<title>Chronik" in page.body
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_untrusting_client_and_plain_http_fail(node: tuple[AuthorizingNode, ClientFactory]) -> None:
    address = node[0].http
    with pytest.raises(ssl.SSLCertVerificationError):
        ApiClient(address, tls=ssl.create_default_context()).get("/session")
    with pytest.raises((http.client.HTTPException, OSError)):
        ApiClient(address).get("/session")


def test_client_certificate_does_not_authenticate_with_authorizer(tmp_path: Path) -> None:
    ca = replace_file(tmp_path / "ca.pem", certificate_authority().certificate_pem)
    with serving(tmp_path, http_truststore=ca) as (_, create_client):
        operator = create_client("CN=operator")
        assert operator.get("/session").json["login_with"] == "password"
        assert operator.get("/topics").status == 401


def test_client_certificate_authenticates_without_authorizer(tmp_path: Path) -> None:
    ca = replace_file(tmp_path / "ca.pem", certificate_authority().certificate_pem)
    with serving(tmp_path, http_truststore=ca, http_token=TOKEN, **WITHOUT_USERS) as (_, create_client):
        assert create_client().get("/topics").status == 401
        operator = create_client("CN=operator")
        assert operator.post("/topics", {"name": "t", "partitions": 1}).status == 200
        assert operator.get("/session").json["logged_in"] is True
        anonymous = create_client()
        assert anonymous.log_in("", TOKEN).headers["set-cookie"].count("Secure") == 1
        assert anonymous.get("/topics").json["total"] == 1
