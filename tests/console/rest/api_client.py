"""A client of the admin API: with a session cookie like a browser, or with a password like a script."""

from __future__ import annotations

import http.client
import json
import ssl
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, NamedTuple

from chronik.console.rest.operation_table import BASE_PATH

DEADLINE_SECONDS = 60.0


class ApiResponse(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json", self
        return json.loads(self.body)


class ApiClient:
    """A client of the admin API. `headers` are sent with every request; `tls` enables HTTPS."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None, **headers: str) -> None:
        self.address = address
        self._tls = tls
        self.headers = headers
        self.cookie = ""

    def send(self, method: str, path: str, body: Any = None, **more: str) -> ApiResponse:
        """Send a request. The path is relative to BASE_PATH, unless it starts with two slashes (one is removed)."""
        connection, response = self.open_response(method, path, body, more)
        try:
            content = response.read()
        finally:
            response.close()
            connection.close()
        headers = {name.lower(): value for name, value in response.getheaders()}
        if "set-cookie" in headers:
            self.cookie = headers["set-cookie"].partition(";")[0]
        return ApiResponse(response.status, headers, content)

    def get(self, path: str, **more: str) -> ApiResponse:
        return self.send("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: str) -> ApiResponse:
        return self.send("POST", path, {} if body is None else body, **more)

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """Yield the events of a stream. Close the generator to disconnect."""
        connection, response = self.open_response("GET", path, None, {})
        name = ""
        try:
            assert response.status == 200, response.read()
            while line := response.readline():
                if line.startswith(b"event: "):
                    name = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    yield name, json.loads(line[6:])
        finally:
            response.close()
            connection.close()

    def first_event(self, path: str, waits_for_event: bool = True) -> ApiResponse:
        """Return the error response, or the first event; without `waits_for_it` only the response head."""
        connection, response = self.open_response("GET", path, None, {})
        headers = {name.lower(): value for name, value in response.getheaders()}
        try:
            if response.status != 200:
                return ApiResponse(response.status, headers, response.read())
            assert headers["content-type"] == "text/event-stream"
            lines = [response.readline() for _ in range(2)] if waits_for_event else []
            return ApiResponse(200, headers, b"".join(lines))
        finally:
            response.close()
            connection.close()

    def log_in(self, username: str, password: str) -> ApiResponse:
        return self.post("/login", {"username": username, "password": password})

    def open_response(
        self, method: str, path: str, body: Any, more: dict[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = dict(self.headers)
        if data is not None:
            headers["content-type"] = "application/json"
        if self.cookie:
            headers["cookie"] = self.cookie
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        connection: http.client.HTTPConnection
        if self._tls is None:
            connection = http.client.HTTPConnection(self.address, timeout=DEADLINE_SECONDS)
        else:
            connection = http.client.HTTPSConnection(self.address, timeout=DEADLINE_SECONDS, context=self._tls)
        connection.request(method, path[1:] if path.startswith("//") else BASE_PATH + path, data, headers)
        return connection, connection.getresponse()


def basic_auth(username: str, password: str) -> str:
    return f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}"
