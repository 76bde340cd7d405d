"""Rejection of requests that a browser sends on behalf of another site (CSRF)."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import urlsplit

from chronik.console.http import HttpRequest
from chronik.console.rest.errors import RestError


def check_origin(request: HttpRequest) -> None:
    """Raise RestError for a request that a browser sends on behalf of another site."""
    origin = request.header(b"origin")
    if origin and _parse_authority(origin) != request.host.lower():
        raise RestError(HTTPStatus.FORBIDDEN, "cross-site requests are rejected")
    if request.header(b"sec-fetch-site") == "cross-site":
        raise RestError(HTTPStatus.FORBIDDEN, "cross-site requests are rejected")


def _parse_authority(origin: str) -> str | None:
    """Return the host and port of an Origin header, or None if it is not a valid URL."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:  # for example an unclosed bracket: "http://["
        return None
