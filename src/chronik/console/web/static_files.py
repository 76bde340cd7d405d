"""The static files of the web console. They are read on first use and cached; browsers revalidate them by ETag."""

from __future__ import annotations

import hashlib
import mimetypes
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from chronik.console.http import HttpRequest, HttpResponse
from chronik.console.status_pages import build_error_page

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


class StaticFiles:
    """The static files of the console."""

    def __init__(self) -> None:
        self._root = files("chronik.console.web") / "static"
        self._file_names = frozenset(_list_files(self._root))
        self._cache: dict[str, _File] = {}

    def has_path(self, path: str) -> bool:
        """Return whether the path belongs to the console. `/ui/` shows the same page as `/`."""
        return path in ("/", "/favicon.ico") or path.startswith(PREFIX)

    def respond(self, request: HttpRequest) -> HttpResponse:
        """Return a file. Only files that were listed at startup are served, which prevents path traversal."""
        name = request.path.removeprefix(PREFIX) if request.path.startswith(PREFIX) else request.path[1:]
        name = name or INDEX
        if name not in self._file_names:
            return build_error_page(HTTPStatus.NOT_FOUND, "file not found")
        if request.method not in ("GET", "HEAD"):
            return build_error_page(HTTPStatus.METHOD_NOT_ALLOWED, "static files support GET and HEAD only")
        file = self._file(name)
        headers = (*HEADERS, ("ETag", file.tag))
        if file.tag in [each.strip() for each in request.header(b"if-none-match").split(",")]:
            return HttpResponse(HTTPStatus.NOT_MODIFIED, file.content_type, headers=headers)
        return HttpResponse(HTTPStatus.OK, file.content_type, file.body, headers=headers)

    def _file(self, name: str) -> _File:
        if name not in self._cache:
            body = self._root.joinpath(name).read_bytes()
            suffix = name[name.rfind(".") :]
            content_type = TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
            self._cache[name] = _File(content_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"', body)
        return self._cache[name]


def _list_files(directory: Traversable, prefix: str = "") -> list[str]:
    found = []
    for each in directory.iterdir():
        if each.is_dir():
            found += _list_files(each, f"{prefix}{each.name}/")
        else:
            found.append(prefix + each.name)
    return found
