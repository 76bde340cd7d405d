"""Requests to identity providers: proxies, redirects, and the limit of the total time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from chronik.security.http_download import download_url, post_form

SECONDS = 1.0
BYTES_MAX = 1000


@pytest.fixture
def requests() -> Iterator[tuple[str, list[str]]]:
    """The address of a server that responds to any request, and the request lines that it received."""
    received: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.respond()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.respond()

        def respond(self) -> None:
            received.append(self.requestline)
            self.send_response(200 if "moved" not in self.path else 307)
            self.send_header("Location", "/target")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}", received
        server.shutdown()
        thread.join()


def test_requests_use_the_proxy_of_the_environment(
    requests: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, received = requests
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://{address}")
    assert download_url("http://provider.invalid/keys", 30, BYTES_MAX) == b"ok"
    assert post_form("http://provider.invalid/token", b"a=b", {}, 30, BYTES_MAX) == (200, b"ok")
    assert received == ["GET http://provider.invalid/keys HTTP/1.1", "POST http://provider.invalid/token HTTP/1.1"]


def test_forms_are_not_sent_to_the_target_of_a_redirect(requests: tuple[str, list[str]]) -> None:
    address, received = requests
    assert post_form(f"http://{address}/moved", b"secret", {}, 30, BYTES_MAX) == (307, b"ok")
    assert received == ["POST /moved HTTP/1.1"]


def test_limit_includes_addresses_that_do_not_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = server.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:  # fill the queue: further connections get no response
            each.setblocking(False)
            each.connect_ex(address)
        found: list[Any] = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address)] * 8
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        started = time.monotonic()
        with pytest.raises(OSError, match=r"timed out|within"):
            download_url("http://provider.example/", SECONDS, BYTES_MAX)
        with pytest.raises(OSError, match=r"timed out|within"):
            post_form("http://provider.example/", b"", {}, SECONDS, BYTES_MAX)
        assert time.monotonic() - started < 4 * SECONDS
        for each in waiting:
            each.close()
