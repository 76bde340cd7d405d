"""HTTP/1.1 parsing and encoding, as far as a node needs it. Performs no I/O.

h11 parses the request heads. Bodies need a Content-Length; chunked bodies and upgrades are rejected. After a malformed
request, the connection is closed, because the start of the next request is unknown.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

import h11
import msgspec

HEAD_BYTES_MAX: Final = 8 * 1024
"""Maximum size of a request line and its headers. Browsers send less than 2 kB; most servers allow 8 kB."""

HEAD_END: Final = b"\r\n\r\n"

BODY_BYTES_MAX: Final = 3 * 1024 * 1024
"""Maximum size of a request body: a 1 MiB message in base64 with its headers, or in JSON with many escapes."""

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
BODYLESS_METHODS: Final = ("GET", "HEAD")
READ_METHODS: Final = "GET, HEAD"
BODYLESS_STATUSES: Final = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)

PARSE_ERROR_CHARACTERS_MAX: Final = 100
"""Maximum length of an h11 error message in a response. Longer messages are truncated, because they quote the
request."""

_TEXT: Final = bytes([ord("\t"), *range(0x20, 0x7F), *range(0x80, 0x100)])
_LOCAL_NAMES: Final = ("localhost", "localhost.localdomain")


class HttpError(Exception):
    """An error that rejects a request with an HTTP status and closes the connection."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class ResponseAborted(Exception):
    """The rest of a response cannot be sent, for an expected reason such as a revoked permission."""


class HttpRequest(msgspec.Struct, frozen=True):
    """The head of an HTTP request."""

    method: str
    path: str
    """The percent-decoded path, without the query."""
    host: str
    keep_alive: bool
    accepts_chunked: bool = True
    """Whether the client accepts chunked responses (HTTP/1.1)."""
    authorization: str = ""
    target: str = ""
    """The path as sent, without the query. Path parameters may contain encoded slashes (%2F)."""
    query: str = ""
    """The raw query string of the request target."""
    body_bytes: int = 0
    """Size of the request body in bytes, from the Content-Length header."""
    headers: Mapping[bytes, str] = MappingProxyType({})
    """Header values by lower-case name."""

    def header(self, name: bytes) -> str:
        """Return the value of a header, or an empty string."""
        return self.headers.get(name, "")


class HttpResponse(msgspec.Struct, frozen=True):
    """An HTTP response with a body, chunks or server-sent events."""

    status: HTTPStatus
    content_type: str
    body: bytes = b""
    chunks: Iterator[bytes] | None = None
    """The chunks of a long page, used instead of a body. Each chunk is produced after the client has received the
    previous one."""
    events: AsyncGenerator[bytes, None] | None = None
    """The chunks of an open-ended event stream, used instead of a body. It is closed when the client disconnects."""
    headers: tuple[tuple[str, str], ...] = ()
    """Additional headers, which override default headers of the same name. A name may occur several times."""


def parse_head(head: bytes) -> HttpRequest:
    """Parse a request head. The terminating HEAD_END must already be removed.

    Raises:
        HttpError: The head is malformed, or the request is not supported.
    """
    _check_line_endings(head)
    request = _parse_with_h11(head)
    headers = {name: value.decode("latin-1") for name, value in request.headers}
    method = request.method.decode("ascii")
    if method not in METHODS:
        raise HttpError(HTTPStatus.METHOD_NOT_ALLOWED, f"method {_truncate_h11_error(method)} is not supported")
    target, _, query = _split_request_target(request.target.decode("ascii"))
    is_http_1_1 = request.http_version == b"1.1"
    return HttpRequest(
        method,
        unquote(target),
        headers.get(b"host", ""),
        is_http_1_1 and _keeps_alive(headers),
        is_http_1_1,
        headers.get(b"authorization", ""),
        target,
        query,
        _parse_body_size(method, headers),
        headers,
    )


def _parse_body_size(method: str, headers: Mapping[bytes, str]) -> int:
    if b"transfer-encoding" in headers:
        raise HttpError(HTTPStatus.LENGTH_REQUIRED, "chunked request bodies are not supported: send a Content-Length")
    if headers.get(b"expect", "100-continue").lower() != "100-continue":
        raise HttpError(HTTPStatus.EXPECTATION_FAILED, "unsupported Expect header: expected 100-continue")
    size = int(headers.get(b"content-length", "0"))  # h11 has validated the number
    if size and method in BODYLESS_METHODS:
        raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a {method} request must not have a body")
    if size > BODY_BYTES_MAX:
        raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body exceeds {BODY_BYTES_MAX} bytes")
    return size


def _check_line_endings(head: bytes) -> None:
    r"""Reject bare \n line endings and folded headers, which h11 accepts but only attackers send.

    Also reject what h11 is slow to reject: a control character after 8,000 spaces takes 350 ms. Without control
    characters, any head of this size takes at most 4 ms.
    """
    if head.translate(None, _TEXT) != b"\r\n" * head.count(b"\r\n"):
        raise HttpError(HTTPStatus.BAD_REQUEST, "control character in the headers")
    if b"\n " in head or b"\n\t" in head:
        raise HttpError(HTTPStatus.BAD_REQUEST, "folded headers are not supported")


def _parse_with_h11(head: bytes) -> h11.Request:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(head + HEAD_END)
    try:
        request = connection.next_event()
    except h11.RemoteProtocolError as error:
        raise HttpError(
            HTTPStatus.BAD_REQUEST, f"not a valid HTTP/1.1 request: {_truncate_h11_error(str(error))}"
        ) from None
    if not isinstance(request, h11.Request) or request.http_version not in (b"1.0", b"1.1"):
        raise HttpError(HTTPStatus.BAD_REQUEST, "expected METHOD PATH HTTP/1.1")
    return request


def _truncate_h11_error(text: str) -> str:
    return text if len(text) <= PARSE_ERROR_CHARACTERS_MAX else f"{text[:PARSE_ERROR_CHARACTERS_MAX]}…"


def _split_request_target(target: str) -> tuple[str, str, str]:
    if not target.startswith("/"):
        raise HttpError(HTTPStatus.BAD_REQUEST, "the path does not start with a slash")
    return target.partition("?")


def _keeps_alive(headers: dict[bytes, str]) -> bool:
    """Return whether the connection stays open after the response. HTTP/1.0's keep-alive header is not supported."""
    return "close" not in headers.get(b"connection", "").lower()


def encode_response(response: HttpResponse, *, with_body: bool = True, keep_alive: bool = False) -> bytes:
    """Encode an HTTP response. If it is chunked, encode only the status line and headers; see `encode_chunk`."""
    status = response.status
    chunked = response.chunks is not None or response.events is not None
    headers = {
        "Content-Type": response.content_type,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    if chunked:
        headers["Transfer-Encoding"] = "chunked"
    elif status not in BODYLESS_STATUSES:
        headers["Content-Length"] = str(len(response.body))
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = READ_METHODS
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if not keep_alive:
        headers["Connection"] = "close"
    for name, _ in response.headers:
        headers.pop(name, None)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
    lines += [f"{name}: {value}" for name, value in (*headers.items(), *response.headers)]
    head = "\r\n".join(lines).encode("ascii") + HEAD_END
    return head + response.body if with_body else head


CONTINUE_RESPONSE: Final = b"HTTP/1.1 100 Continue" + HEAD_END
"""The interim response to a request with `Expect: 100-continue`."""


def encode_chunk(piece: bytes) -> bytes:
    """Encode one chunk of a chunked HTTP response. An empty chunk terminates the response."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def is_loopback_host(host: str) -> bool:
    """Return whether a Host header names the loopback interface: 127.0.0.1, [::1] or localhost.

    This check prevents DNS rebinding: a web site can make a name of its own resolve to 127.0.0.1 and let the user's
    browser read the responses. Such requests carry the site's name in the Host header.
    """
    name = re.sub(r":\d*$", "", host).strip("[]").lower()
    if name in _LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
