"""Serving of the console's static files."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from chronik.console.http import HttpRequest, HttpResponse
from chronik.console.web.static_files import StaticFiles


def request(path: str, method: str = "GET", **headers: str) -> HttpResponse:
    named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return StaticFiles().respond(HttpRequest(method, unquote(path), "localhost", True, headers=named))


def test_root_path_serves_console_page() -> None:
    page = request("/")
    assert page.status == 200
    assert page.content_type == "text/html; charset=utf-8"
    assert b"Chronik" in page.body
    assert request("/ui/").body == request("/ui/index.html").body == page.body


def test_matching_etag_returns_not_modified() -> None:
    tag = dict(request("/").headers)["ETag"]
    assert request("/", if_none_match=tag).status == 304
    assert request("/", if_none_match=f'"other", {tag}').status == 304
    assert request("/", if_none_match='"other"').status == 200


@pytest.mark.parametrize(
    "path",
    ["/ui/nothing.js", "/ui/../assets.py", "/ui/%2e%2e/assets.py", "/ui//etc/passwd", "/ui/..", "/ui/\0"],
)
def test_unknown_path_returns_not_found(path: str) -> None:
    assert request(path).status == 404


def test_post_to_static_file_is_not_allowed() -> None:
    assert request("/ui/index.html", "POST").status == 405
