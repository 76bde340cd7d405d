"""Cross-site requests from a logged-in browser are rejected."""

from __future__ import annotations

import pytest

from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient

NEW = {"name": "by-another-site", "partitions": 1}


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://localhost.evil.example",
        "x",
        "http://[",
        "http://[::1",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_foreign_origin_is_rejected(node: AuthorizingNode, root: ApiClient, origin: str, method: str) -> None:
    before = node.stored_records()
    answer = root.send(method, "/topics", NEW if method == "POST" else None, origin=origin)
    assert answer.status == 403
    assert node.stored_records() == before


def test_same_origin_is_accepted(root: ApiClient) -> None:
    assert root.get("/topics", origin=f"http://{root.address}").status == 200


def test_cross_site_fetch_metadata_is_rejected(root: ApiClient) -> None:
    assert root.get("/topics", sec_fetch_site="cross-site").status == 403
    assert root.get("/topics", sec_fetch_site="same-origin").status == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_non_json_content_type_is_rejected(node: AuthorizingNode, root: ApiClient, kind: str) -> None:
    before = node.stored_records()
    assert root.post("/topics", NEW, content_type=kind).status == 415
    assert node.stored_records() == before


def test_foreign_host_header_is_rejected(root: ApiClient) -> None:
    assert root.get("/session", host="rebound.example").status == 421
    assert root.get("//", host="rebound.example").status == 421


@pytest.mark.parametrize("path", ["/session", "/topics", "//", "//healthz"])
def test_responses_have_no_cors_headers(root: ApiClient, path: str) -> None:
    answer = root.get(path, origin=f"http://{root.address}")
    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_console_has_strict_content_security_policy(root: ApiClient) -> None:
    page = ApiClient(root.address).get("//")
    assert page.status == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    again = root.get("//", if_none_match=page.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert root.get("//ui/").body == page.body
    for path in (
        "//ui/../assets.py",
        "//ui/%2e%2e/assets.py",
        "//ui/nothing.js",
        "//ui//etc/passwd",
        "//ui/..%2fassets.py",
    ):
        assert root.get(path).status == 404
    assert root.post("//ui/index.html").status == 405
