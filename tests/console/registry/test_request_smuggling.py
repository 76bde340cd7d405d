"""Requests whose length is ambiguous: no port may take a part of one request for another request.

Each hostile request contains a request that registers a schema, which a proxy in front of the node could take for a
part of the body. The node answers the hostile request once, with an error, and closes the connection.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import pytest

from chronik.admin.users import create_first_user_command
from tests.api.authorizing_node import AuthorizingNode
from tests.console.registry.registry_api import CONTENT_TYPE, PASSWORD
from tests.console.rest.api_client import DEADLINE_SECONDS, basic_auth
from tests.tls.certificates import client_context, issue_certificate, replace_file

BODY = json.dumps({"schema": '"string"'}).encode()
RESPONSE = b"HTTP/1.1 "
STATUS_LINE = re.compile(rb"HTTP/1\.1 \d{3} ")


class Port(NamedTuple):
    """A port that serves the registry, and the path at which it does."""

    address: str
    base: str
    tls: ssl.SSLContext | None = None

    def exchange(self, data: bytes) -> bytes:
        """Send data on a new connection, and return everything that the node sends until it closes the connection."""
        host, port = self.address.split(":")
        with socket.create_connection((host, int(port)), DEADLINE_SECONDS) as plain:
            connection = plain if self.tls is None else self.tls.wrap_socket(plain, server_hostname=host)
            with connection:
                connection.sendall(data)
                received = b""
                with suppress(ConnectionResetError):
                    while block := connection.recv(65536):
                        received += block
                return received

    def registration(self, subject: str, framing: bytes, body: bytes = BODY) -> bytes:
        """Return a request that registers a schema; `framing` are the header lines that give the length of its body."""
        return (
            f"POST {self.base}/subjects/{subject}/versions HTTP/1.1\r\nHost: localhost\r\nContent-Type: {CONTENT_TYPE}"
            f"\r\nAuthorization: {basic_auth('root', PASSWORD)}\r\n".encode()
            + framing
            + b"\r\n"
            + body
        )

    def list_subjects(self) -> list[str]:
        request = f"GET {self.base}/subjects HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        request += f"Authorization: {basic_auth('root', PASSWORD)}\r\n\r\n"
        head, _, body = self.exchange(request.encode()).partition(b"\r\n\r\n")
        assert head.startswith(RESPONSE + b"200 ")
        found: list[str] = json.loads(body)
        return found


def get_own_address(node: AuthorizingNode) -> str:
    assert node._node.registry_url is not None
    return node._node.registry_url.partition("://")[2]


@pytest.fixture(scope="module")
def secured_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AuthorizingNode, ssl.SSLContext]]:
    folder = tmp_path_factory.mktemp("tls")
    keystore = replace_file(folder / "node.pem", issue_certificate("CN=node").keystore_pem)
    addresses = {"http": "127.0.0.1:0", "registry": "127.0.0.1:0"}
    started = AuthorizingNode(folder / "data", http_keystore=str(keystore), **addresses, **{"super.users": "User:root"})
    try:
        started.propose(create_first_user_command("root", PASSWORD))
        yield started, client_context(folder)
    finally:
        started.close()


@pytest.fixture(params=["http", "own"])
def port(request: pytest.FixtureRequest, node: AuthorizingNode) -> Port:
    return Port(node.http, "/registry") if request.param == "http" else Port(get_own_address(node), "")


@pytest.fixture(params=["http", "own"])
def tls_port(request: pytest.FixtureRequest, secured_node: tuple[AuthorizingNode, ssl.SSLContext]) -> Port:
    node, context = secured_node
    if request.param == "http":
        return Port(node.http, "/registry", context)
    return Port(get_own_address(node), "", context)


LENGTH = b"Content-Length: %d\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
AMBIGUOUS = {
    "chunked": CHUNKED,
    "length, then chunked": LENGTH + CHUNKED,
    "chunked, then length": CHUNKED + LENGTH,
    "length 0 and chunked": b"Content-Length: 0\r\n" + CHUNKED,
    "chunked twice": CHUNKED + CHUNKED,
    "identity": LENGTH + b"Transfer-Encoding: identity\r\n",
    "gzip, chunked": LENGTH + b"Transfer-Encoding: gzip, chunked\r\n",
    "chunked, identity": LENGTH + b"Transfer-Encoding: chunked, identity\r\n",
    "unknown encoding": LENGTH + b"Transfer-Encoding: xchunked\r\n",
    "quoted encoding": LENGTH + b'Transfer-Encoding: "chunked"\r\n',
    "empty encoding": LENGTH + b"Transfer-Encoding:\r\n",
    "encoding in capitals": LENGTH + b"TRANSFER-ENCODING: CHUNKED\r\n",
    "encoding after tab": LENGTH + b"Transfer-Encoding:\tchunked\r\n",
    "space before colon": LENGTH + b"Transfer-Encoding : chunked\r\n",
    "tab before colon": LENGTH + b"Transfer-Encoding\t: chunked\r\n",
    "space before name": LENGTH + b" Transfer-Encoding: chunked\r\n",
    "vertical tab in value": LENGTH + b"Transfer-Encoding: \x0bchunked\r\n",
    "NUL in name": LENGTH + b"Transfer-Encoding\x00: chunked\r\n",
    "folded value": LENGTH + b"Transfer-Encoding:\r\n chunked\r\n",
    "folded by tab": LENGTH + b"X: a\r\n\tTransfer-Encoding: chunked\r\n",
    "bare line feed": LENGTH + b"X: a\nTransfer-Encoding: chunked\r\n",
    "bare carriage return": LENGTH + b"X: a\rTransfer-Encoding: chunked\r\n",
    "bare line feed at the end": LENGTH + b"X: a\n\nGET / HTTP/1.1\r\n",
    "two lengths": LENGTH + b"Content-Length: 0\r\n",
    "two lengths, 0 first": b"Content-Length: 0\r\n" + LENGTH,
    "list of lengths": b"Content-Length: 0, %d\r\n",
    "length with sign": b"Content-Length: +%d\r\n",
    "negative length": b"Content-Length: -%d\r\n",
    "hexadecimal length": b"Content-Length: 0x%x\r\n",
    "length with space": b"Content-Length: %d 0\r\n",
    "length with underscore": b"Content-Length: 1_%d\r\n",
    "length with point": b"Content-Length: %d.0\r\n",
    "empty length": b"Content-Length:\r\n",
    "space before colon of length": b"Content-Length : %d\r\n",
    "digits that are not ASCII": b"Content-Length: \xb2%d\r\n",
}
"""Header lines that give the length of a body in several ways or in none. %d is the length of the whole body."""

CHUNKED_BODIES = {
    "chunk": b"%x\r\n%b\r\n0\r\n\r\n",
    "chunk extension": b"%x;a=b\r\n%b\r\n0\r\n\r\n",
    "chunk extension with line feed": b"%x;a\nb\r\n%b\r\n0\r\n\r\n",
    "trailer": b"%x\r\n%b\r\n0\r\nContent-Length: 0\r\n\r\n",
    "chunk size of 17 digits": b"1%016x\r\n%b\r\n0\r\n\r\n",
    "chunk without line end": b"%x\r\n%b0\r\n\r\n",
}


def fill(framing: bytes, size: int) -> bytes:
    return framing % size if b"%" in framing else framing


def assert_rejected_once(port: Port, answer: bytes, allowed: tuple[bytes, ...] = (b"400", b"411")) -> None:
    assert answer.startswith(tuple(RESPONSE + status for status in allowed)), answer
    assert len(STATUS_LINE.findall(answer)) == 1, answer
    assert b"\r\nConnection: close\r\n" in answer
    assert not {"outer", "smuggled"} & set(port.list_subjects())


def test_smuggled_request_would_be_valid(port: Port) -> None:
    """The other tests can fail: the requests that they hide are accepted if they are separate."""
    both = port.registration("first", LENGTH % len(BODY)) + port.registration(
        "second", LENGTH % len(BODY) + b"Connection: close\r\n"
    )
    answer = port.exchange(both)
    assert answer.count(RESPONSE + b"200 ") == 2
    assert {"first", "second"} <= set(port.list_subjects())


@pytest.mark.parametrize("framing", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_request_of_ambiguous_length_is_rejected(port: Port, framing: bytes) -> None:
    smuggled = port.registration("smuggled", LENGTH % len(BODY))
    body = b"0\r\n\r\n" + smuggled
    answer = port.exchange(port.registration("outer", fill(framing, len(body)), body))
    assert_rejected_once(port, answer)


@pytest.mark.parametrize("form", CHUNKED_BODIES.values(), ids=CHUNKED_BODIES)
def test_chunked_body_is_rejected_with_request_for_length(port: Port, form: bytes) -> None:
    body = form % (len(BODY), BODY) + port.registration("smuggled", LENGTH % len(BODY))
    answer = port.exchange(port.registration("outer", CHUNKED, body))
    assert_rejected_once(port, answer, (b"411",))
    assert b"chunked request bodies are not supported: send a Content-Length" in answer


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_body_of_read_is_rejected(port: Port, method: str) -> None:
    smuggled = port.registration("smuggled", LENGTH % len(BODY))
    head = f"{method} {port.base}/subjects HTTP/1.1\r\nHost: localhost\r\n".encode()
    assert_rejected_once(port, port.exchange(head + LENGTH % len(smuggled) + b"\r\n" + smuggled), (b"413",))


def test_equal_lengths_are_one_length(port: Port) -> None:
    """Two equal lengths are unambiguous (RFC 9112, 6.3): the body ends where both say."""
    size = LENGTH % len(BODY)
    hidden = port.registration("within", LENGTH % 0, b"")
    request = port.registration("equal", LENGTH % (len(BODY) + len(hidden)) * 2, BODY + hidden)
    answer = port.exchange(request + port.registration("after", size + b"Connection: close\r\n"))
    assert answer.startswith(RESPONSE + b"400 "), "the body is not JSON, because it contains the hidden request"
    assert len(STATUS_LINE.findall(answer)) == 2
    assert "after" in port.list_subjects()
    assert "within" not in port.list_subjects()


@pytest.mark.parametrize("name", ["length, then chunked", "two lengths", "bare line feed"])
def test_request_of_ambiguous_length_is_rejected_over_tls(tls_port: Port, name: str) -> None:
    body = b"0\r\n\r\n" + tls_port.registration("smuggled", LENGTH % len(BODY))
    answer = tls_port.exchange(tls_port.registration("outer", fill(AMBIGUOUS[name], len(body)), body))
    assert_rejected_once(tls_port, answer)
