"""HTTP/1.1 as far as a node's status needs it: heads of requests in, whole responses out. Pure.

GET and HEAD, no bodies, no chunks, no upgrades. What cannot be understood is answered with an error and the end of the
connection, since nobody knows where the next request would begin.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

HEAD_BYTES_MAX: Final = 8 * 1024
"""A request line and its headers. Browsers send under 2 kB, Prometheus 300 bytes; most servers allow 8 kB."""

HEAD_END: Final = b"\r\n\r\n"

_REQUEST_LINE: Final = re.compile(r"([!-~]+) ([!-~]+) HTTP/1\.([01])")
_HEADER: Final = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*(.*?)[ \t]*")
_LOCAL_NAMES: Final = ("localhost", "localhost.localdomain")


class BadRequest(Exception):
    """The peer's fault: answered with `status`, then the connection ends."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    """Decoded, without the query."""
    host: str
    keep_alive: bool


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: HTTPStatus
    content_type: str
    body: bytes


def parse_head(head: bytes) -> HttpRequest:
    """What stands before HEAD_END. Raises BadRequest."""
    line, *header_lines = head.decode("latin-1").split("\r\n")
    parts = _REQUEST_LINE.fullmatch(line)
    if parts is None:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "expected METHOD PATH HTTP/1.1")
    method, target, minor = parts.groups()
    headers = _parse_headers(header_lines)
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "no request has a body here")
    if method not in ("GET", "HEAD"):
        raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} is not spoken here; GET and HEAD are")
    if minor == "1" and "host" not in headers:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "the Host header is missing")
    return HttpRequest(method, _path(target), headers.get("host", ""), _keeps_alive(minor, headers))


def _parse_headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        parts = _HEADER.fullmatch(line)
        if parts is None:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "a header cannot be read")
        name = parts[1].lower()
        if name == "host" and name in headers:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "two Host headers")
        headers[name] = parts[2]
    return headers


def _path(target: str) -> str:
    if not target.startswith("/"):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "the path begins with no slash")
    return unquote(target.partition("?")[0])


def _keeps_alive(minor: str, headers: dict[str, str]) -> bool:
    """HTTP/1.0 would have to ask for it, and is used by nobody who comes twice."""
    return minor == "1" and "close" not in headers.get("connection", "").lower()


def encode_response(response: HttpResponse, *, with_body: bool = True, keep_alive: bool = False) -> bytes:
    status = response.status
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    if not keep_alive:
        lines.append("Connection: close")
    head = "\r\n".join(lines).encode("ascii") + HEAD_END
    return head + response.body if with_body else head


def names_this_machine(host: str) -> bool:
    """Whether a Host header says 127.0.0.1, [::1] or localhost.

    A page of the web that a user looks at can make a name of its own point at 127.0.0.1 and then read what is served
    there as if it were its own. Its requests carry that name.
    """
    name = re.sub(r":\d*$", "", host).strip("[]").lower()
    if name in _LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
