"""HTTP/1.1 as far as a node needs it: heads of requests in, responses out. Pure.

Heads are read by h11, which is made for what strangers send. Bodies have a length, and no chunks; there are no
upgrades. What cannot be understood is answered with an error and the end of the connection, since nobody knows where
the next request begins.
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
"""A request line and its headers. Browsers send under 2 kB, Prometheus 300 bytes; most servers allow 8 kB."""

HEAD_END: Final = b"\r\n\r\n"

BODY_BYTES_MAX: Final = 3 * 1024 * 1024
"""A message of 1 MiB in base64, with its headers, or in JSON with every other character escaped."""

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
WITHOUT_BODY: Final = ("GET", "HEAD")
LOOKING: Final = "GET, HEAD"

COMPLAINT_CHARACTERS_MAX: Final = 100
"""How much is told of what h11 says about a request, which repeats the request."""

_TEXT: Final = bytes([ord("\t"), *range(0x20, 0x7F), *range(0x80, 0x100)])
_LOCAL_NAMES: Final = ("localhost", "localhost.localdomain")


class BadRequest(Exception):
    """The peer's fault: answered with `status`, then the connection ends."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class HttpRequest(msgspec.Struct, frozen=True):
    method: str
    path: str
    """Decoded, without the query."""
    host: str
    keep_alive: bool
    takes_chunks: bool = True
    """HTTP/1.0 does not."""
    authorization: str = ""
    target: str = ""
    """The path as it was sent, without the query: a name in it may have slashes of its own, as %2F."""
    query: str = ""
    """As it was sent."""
    body_bytes: int = 0
    """How long its body is, which comes behind the head."""
    headers: Mapping[bytes, str] = MappingProxyType({})
    """By their names in small letters."""

    def header(self, name: bytes) -> str:
        return self.headers.get(name, "")


class HttpResponse(msgspec.Struct, frozen=True):
    status: HTTPStatus
    content_type: str
    body: bytes = b""
    pieces: Iterator[bytes] | None = None
    """The pieces of a page that may be long, instead of a body: each is made when there is room for it."""
    events: AsyncGenerator[bytes, None] | None = None
    """What comes when there is something to tell, instead of a body; it is closed when the peer goes. No piece is
    empty."""
    headers: tuple[tuple[str, str], ...] = ()
    """Those beside the ones that every answer has, or instead of them."""


def parse_head(head: bytes) -> HttpRequest:
    """Parses what stands before HEAD_END. Raises BadRequest."""
    _check_bytes(head)
    request = _read(head)
    headers = {name: value.decode("latin-1") for name, value in request.headers}
    method = request.method.decode("ascii")
    if method not in METHODS:
        raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, f"{_shortened(method)} is not spoken here")
    target, _, query = _target(request.target.decode("ascii"))
    is_new = request.http_version == b"1.1"
    return HttpRequest(
        method,
        unquote(target),
        headers.get(b"host", ""),
        is_new and _keeps_alive(headers),
        is_new,
        headers.get(b"authorization", ""),
        target,
        query,
        _body_bytes(method, headers),
        headers,
    )


def _body_bytes(method: str, headers: Mapping[bytes, str]) -> int:
    if b"transfer-encoding" in headers:
        raise BadRequest(HTTPStatus.LENGTH_REQUIRED, "a body has a Content-Length here, and no chunks")
    if headers.get(b"expect", "100-continue").lower() != "100-continue":
        raise BadRequest(HTTPStatus.EXPECTATION_FAILED, "expected no expectation but 100-continue")
    size = int(headers.get(b"content-length", "0"))  # h11 has seen that it is a number
    if size and method in WITHOUT_BODY:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{method} has no body here")
    if size > BODY_BYTES_MAX:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {BODY_BYTES_MAX} bytes in one body")
    return size


def _check_bytes(head: bytes) -> None:
    """Refuses what h11 takes, and is only sent to deceive: lines that end otherwise, headers that go over two lines.

    And what it takes long to refuse: a control character after 8,000 spaces costs it 350 ms; without one it is done
    with any head of this size in 4 ms.
    """
    if head.translate(None, _TEXT) != b"\r\n" * head.count(b"\r\n"):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "a control character in the headers")
    if b"\n " in head or b"\n\t" in head:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "a header goes over two lines")


def _read(head: bytes) -> h11.Request:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(head + HEAD_END)
    try:
        request = connection.next_event()
    except h11.RemoteProtocolError as error:
        raise BadRequest(HTTPStatus.BAD_REQUEST, f"not a request of HTTP/1.1: {_shortened(str(error))}") from None
    if not isinstance(request, h11.Request) or request.http_version not in (b"1.0", b"1.1"):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "expected METHOD PATH HTTP/1.1")
    return request


def _shortened(text: str) -> str:
    return text if len(text) <= COMPLAINT_CHARACTERS_MAX else f"{text[:COMPLAINT_CHARACTERS_MAX]}…"


def _target(target: str) -> tuple[str, str, str]:
    if not target.startswith("/"):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "the path does not begin with a slash")
    return target.partition("?")


def _keeps_alive(headers: dict[bytes, str]) -> bool:
    """HTTP/1.0 would have to ask for it, and is used by nobody who comes twice."""
    return "close" not in headers.get(b"connection", "").lower()


def encode_response(response: HttpResponse, *, with_body: bool = True, keep_alive: bool = False) -> bytes:
    """Encodes all of it; of one in pieces only the head, and `chunk` makes the rest."""
    status = response.status
    chunked = response.pieces is not None or response.events is not None
    headers = {
        "Content-Type": response.content_type,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    if chunked:
        headers["Transfer-Encoding"] = "chunked"
    elif status is not HTTPStatus.NOT_MODIFIED:
        headers["Content-Length"] = str(len(response.body))
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = LOOKING
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if not keep_alive:
        headers["Connection"] = "close"
    headers |= dict(response.headers)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    head = "\r\n".join(lines).encode("ascii") + HEAD_END
    return head + response.body if with_body else head


CONTINUE: Final = b"HTTP/1.1 100 Continue" + HEAD_END
"""What some wait for before they send a long body."""


def chunk(piece: bytes) -> bytes:
    """Encodes one piece; an empty one is the end."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


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
