"""HTTP requests to the schema registry that are expensive to answer.

A payload maps the number of a request to the request.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final

from tests.abuse.floods.requests import Payload
from tests.abuse.hostile_schemas import build_schemas

REGISTRY_PATH: Final = "/registry"
FIRST_UNKNOWN_ID: Final = 1_000_000
PARSED_SCHEMAS: Final = ("avro-records-of-records", "json-enum", "protobuf-enum")
"""Valid schemas that take long to parse and compare, one of each format."""

SCALE: Final = 4


def encode_http_request(method: str, path: str, body: Any = None) -> bytes:
    """Encode an HTTP request to the registry."""
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {REGISTRY_PATH}{path} HTTP/1.1\r\nHost: localhost\r\n"
    if data:
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    return head.encode() + b"\r\n" + data


def _repeat(method: str, path: str) -> Payload:
    request = encode_http_request(method, path)
    return lambda number: request


def register_subject(number: int) -> bytes:
    """Return the registration of a small schema, which is the same for all subjects."""
    return encode_http_request("POST", f"/subjects/subject-{number:06d}/versions", {"schema": '"int"'})


def _look_up_unknown_id(number: int) -> bytes:
    return encode_http_request("GET", f"/schemas/ids/{FIRST_UNKNOWN_ID + number}")


@cache
def _encode_checks() -> tuple[bytes, ...]:
    schemas = build_schemas(SCALE)
    return tuple(
        encode_http_request(
            "POST",
            "/subjects/flooded/versions",
            {"schemaType": schemas[name].schema_type, "schema": schemas[name].text},
        )
        for name in PARSED_SCHEMAS
    )


def _register_large_schema(number: int) -> bytes:
    requests = _encode_checks()
    request = requests[number % len(requests)]
    return request.replace(b"/flooded/", f"/flooded-{number}/".encode(), 1)


REGISTRY_PAYLOADS: Final[dict[str, Payload]] = {
    "registry-subject": register_subject,
    "registry-list-subjects": _repeat("GET", "/subjects"),
    "registry-list-schemas": _repeat("GET", "/schemas"),
    "registry-list-last-schemas": _repeat("GET", "/schemas?offset=99999999"),
    "registry-subjects-of-id": _repeat("GET", "/schemas/ids/1/subjects"),
    "registry-unknown-ids": _look_up_unknown_id,
    "registry-large-schemas": _register_large_schema,
}
