"""A client of the schema registry's REST API that returns raw responses."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.console.rest.api_client import DEADLINE_SECONDS, basic_auth

BASE_PATH = "/registry"
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
PASSWORD = "correct horse"


class RegistryResponse(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == CONTENT_TYPE, self
        return json.loads(self.body)

    @property
    def error_code(self) -> int:
        return int(self.json["error_code"])


class RegistryApi:
    """A client of a registry at `address`, below `base_path`, with the credentials of `user` if it is given."""

    def __init__(self, address: str, user: str | None = None, base_path: str = BASE_PATH, **headers: str) -> None:
        self._address = address
        self._base_path = base_path
        self._headers = headers | ({} if user is None else {"authorization": basic_auth(user, PASSWORD)})

    def send(self, method: str, path: str, body: Any = None, **more: str) -> RegistryResponse:
        """Send a request. Keyword arguments are headers, with underscores for hyphens."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = dict(self._headers)
        if data is not None:
            headers["content-type"] = CONTENT_TYPE
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        connection = http.client.HTTPConnection(self._address, timeout=DEADLINE_SECONDS)
        try:
            connection.request(method, f"{self._base_path}{path}", data, headers)
            response = connection.getresponse()
            content = response.read()
            return RegistryResponse(
                response.status, {name.lower(): value for name, value in response.getheaders()}, content
            )
        finally:
            connection.close()

    def get(self, path: str, **more: str) -> RegistryResponse:
        return self.send("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: str) -> RegistryResponse:
        return self.send("POST", path, {} if body is None else body, **more)

    def register(self, subject: str, schema: str, **fields: Any) -> int:
        """Register a schema, and return its id."""
        response = self.post(f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema, **fields})
        assert response.status == 200, response
        return int(response.json["id"])
