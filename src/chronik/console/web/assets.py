"""The console's files: read when they are first asked for, and kept; browsers ask again whether they have changed."""

from __future__ import annotations

import hashlib
import mimetypes
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from chronik.console.http import HttpRequest, HttpResponse
from chronik.console.pages import error_page

PREFIX: Final = "/ui/"
INDEX: Final = "index.html"

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = (
    ("Content-Security-Policy", POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("X-Frame-Options", "DENY"),
    ("Cache-Control", "no-cache"),
)

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".woff2": "font/woff2",
    ".ico": "image/x-icon",
}


class _File(NamedTuple):
    content_type: str
    tag: str
    body: bytes


class Assets:
    def __init__(self) -> None:
        self._root = files("chronik.console.web") / "static"
        self._names = frozenset(_names(self._root))
        self._kept: dict[str, _File] = {}

    def knows(self, path: str) -> bool:
        """Whether the path is one of the console's. `/ui/` alone is the console, as `/` is."""
        return path in ("/", "/favicon.ico") or path.startswith(PREFIX)

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Only files that are there by name are looked for: no path leads out of the folder."""
        name = request.path.removeprefix(PREFIX) if request.path.startswith(PREFIX) else request.path[1:]
        name = name or INDEX
        if name not in self._names:
            return error_page(HTTPStatus.NOT_FOUND, "the console has no such file")
        if request.method not in ("GET", "HEAD"):
            return error_page(HTTPStatus.METHOD_NOT_ALLOWED, "a file can only be read")
        file = self._file(name)
        headers = (*HEADERS, ("ETag", file.tag))
        if file.tag in [each.strip() for each in request.header(b"if-none-match").split(",")]:
            return HttpResponse(HTTPStatus.NOT_MODIFIED, file.content_type, headers=headers)
        return HttpResponse(HTTPStatus.OK, file.content_type, file.body, headers=headers)

    def _file(self, name: str) -> _File:
        if name not in self._kept:
            body = self._root.joinpath(name).read_bytes()
            suffix = name[name.rfind(".") :]
            content_type = TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
            self._kept[name] = _File(content_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"', body)
        return self._kept[name]


def _names(folder: Traversable, prefix: str = "") -> list[str]:
    found = []
    for each in folder.iterdir():
        if each.is_dir():
            found += _names(each, f"{prefix}{each.name}/")
        else:
            found.append(prefix + each.name)
    return found
