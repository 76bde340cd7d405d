"""The console's files: what is there by name, with a policy that lets nothing else in; and nothing else."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from chronik.console.http import HttpRequest, HttpResponse
from chronik.console.web.assets import Assets


def answer(path: str, method: str = "GET", **headers: str) -> HttpResponse:
    named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return Assets().answer(HttpRequest(method, unquote(path), "localhost", True, headers=named))


def test_the_root_is_the_console() -> None:
    page = answer("/")
    assert page.status == 200
    assert page.content_type == "text/html; charset=utf-8"
    assert b"Chronik" in page.body
    assert answer("/ui/").body == answer("/ui/index.html").body == page.body


def test_a_browser_that_has_a_file_is_not_sent_it_again() -> None:
    tag = dict(answer("/").headers)["ETag"]
    assert answer("/", if_none_match=tag).status == 304
    assert answer("/", if_none_match=f'"other", {tag}').status == 304
    assert answer("/", if_none_match='"other"').status == 200


@pytest.mark.parametrize(
    "path",
    ["/ui/nothing.js", "/ui/../assets.py", "/ui/%2e%2e/assets.py", "/ui//etc/passwd", "/ui/..", "/ui/\0"],
)
def test_nothing_else_is_found(path: str) -> None:
    assert answer(path).status == 404


def test_files_can_only_be_read() -> None:
    assert answer("/ui/index.html", "POST").status == 405
