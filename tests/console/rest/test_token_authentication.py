"""Nodes without an authorizer: open on loopback, or protected by http_token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient

TOKEN = "correct-horse"
OPEN: dict[str, Any] = {"authorizer.class.name": ""}


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
