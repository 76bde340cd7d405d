"""Invalid paths, methods, queries and bodies are rejected with a message, never with 500.

Names have the length limits of the Kafka API handlers.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from chronik.console.http import BODY_BYTES_MAX
from chronik.limits import CONFIG_NAME_CHARACTERS_MAX, GROUP_ID_CHARACTERS_MAX, HOST_CHARACTERS_MAX
from chronik.metadata.handlers.security import USER_NAME_CHARACTERS_MAX
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient, ApiResponse


def is_error(answer: ApiResponse, status: int) -> bool:
    assert answer.status == status, answer
    assert isinstance(answer.json["error"], str)
    assert len(answer.json["error"]) > 5
    return True


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/nothing",
        "/topics/",
        "/topics//configs",
        "/topics/a/b/c/d",
        "",
        "/nodes/x",
        "/nodes/-1",
        "/nodes/99999999999999999999",
        "/topics/%ff",
    ],
)
def test_unknown_path_returns_not_found(root: ApiClient, path: str) -> None:
    assert is_error(root.get(path), 404)


def test_unsupported_method_returns_not_allowed(root: ApiClient) -> None:
    answer = root.send("DELETE", "/topics")
    assert is_error(answer, 405)
    assert answer.headers["allow"] == "GET, POST"
    assert root.send("HEAD", "/topics").status == 200


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=501", "limit=x", "limit=1&limit=2", "limti=5", "internal=perhaps", "limit", "limit=%ff"),
        *("&".join(f"a{number}=1" for number in range(60)), "limit=1e3", "limit= 1"),
    ],
)
def test_invalid_query_is_rejected(root: ApiClient, query: str) -> None:
    assert is_error(root.get(f"/topics?{query.replace(' ', '%20')}"), 422)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b'{"name":' + b"[" * 100_000, 422),
        (b"null", 422),
        (b"[]", 422),
        (b'{"name": 5}', 422),
        (b'{"partitions": 5}', 422),
        (b'{"name": "t", "partitions": "5"}', 422),
        (b'{"name": "t", "partitions": 0}', 422),
        (b'{"name": "t", "partitions": 1e300}', 422),
        (b'{"name": "t", "partition": 5}', 422),
        (b'{"name": "", "partitions": 5}', 422),
        (b'{"name": "t", "configs": {"a": 5}}', 422),
        (b'{"name": "t/t"}', 400),
        (b'{"name": "..", "partitions": 1}', 400),
        (b'{"name": "t", "configs": {"nonsense": "5"}}', 400),
        (b'{"name": "t", "replication_factor": 7}', 400),
        (b'{"name": "\\ud800"}', 400),
        (b'{"name": "t\\u0000t"}', 400),
    ],
)
def test_invalid_body_is_rejected(root: ApiClient, body: bytes, status: int) -> None:
    assert is_error(root.post("/topics", body), status)


def test_body_size_limit_is_enforced(root: ApiClient) -> None:
    def body_of_size(size: int) -> bytes:
        start = b'{"value": "'
        return start + b"x" * (size - len(start) - 2) + b'"}'

    longest = root.post("/topics/nothing/messages", body_of_size(BODY_BYTES_MAX))
    assert is_error(longest, 404)
    with pytest.raises((AssertionError, ConnectionError)):  # the connection may be reset during the upload
        assert root.post("/topics/nothing/messages", body_of_size(BODY_BYTES_MAX + 1)).status != 413
    assert root.send("DELETE", "/topics/t", {}).status == 413


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/topics/nothing", None, 404),
        ("DELETE", "/topics/nothing", None, 404),
        ("GET", "/topics/nothing/messages", None, 404),
        ("GET", "/topics/nothing/search?text=x", None, 404),
        ("GET", "/topics/nothing/tail", None, 404),
        ("GET", "/topics/nothing/configs", None, 404),
        ("POST", "/topics/nothing/messages", {"value": "x"}, 404),
        ("GET", "/topics/wrongly/messages?from=tomorrow", None, 400),
        ("GET", "/topics/wrongly/messages?from=@tomorrow", None, 400),
        ("GET", "/topics/wrongly/messages?from=~x", None, 400),
        ("GET", "/topics/wrongly/messages?partition=7", None, 404),
        ("POST", "/topics/wrongly/messages", {"partition": 7, "value": "x"}, 404),
        ("POST", "/topics/wrongly/messages", {"value": "x", "value_format": "base64"}, 400),
        ("POST", "/topics/wrongly/messages", {"value": "{", "value_format": "json"}, 400),
        ("POST", "/topics/wrongly/messages", {"value": "x" * 1_100_000}, 413),
        ("POST", "/topics/wrongly/messages", {"headers": [{"name": "\ud800"}]}, 400),
        ("POST", "/topics/wrongly/partitions", {"count": 1}, 400),
        ("POST", "/topics/wrongly/records/delete", {"offsets": {}}, 400),
        ("POST", "/topics/wrongly/records/delete", {"offsets": {"0": 99}}, 400),
        ("POST", "/topics", {"name": "wrongly"}, 409),
        ("GET", "/groups/nothing", None, 404),
        ("DELETE", "/groups/nothing", None, 404),
        ("POST", "/groups/g/offsets", {"to": "end"}, 400),
        ("POST", "/groups/g/offsets", {"topics": ["wrongly"], "to": "somewhere"}, 400),
        ("POST", "/groups/g/offsets", {"topics": ["wrongly"], "to": "+5"}, 400),
        ("POST", "/groups/g/offsets", {"topics": ["nothing"], "to": "end"}, 404),
        ("POST", "/transactions/nothing/abort", {}, 404),
        ("POST", "/reassignments", {"partitions": [{"topic": "wrongly", "partition": 0, "replicas": [7]}]}, 400),
        ("POST", "/reassignments", {"partitions": [{"topic": "nothing", "partition": 0, "replicas": [1]}]}, 404),
        ("DELETE", "/users/nobody", None, 404),
        ("POST", "/acls", {"acls": [{"resource": "cluster", "name": "x", "principal": "y", "operation": "read"}]}, 400),
        ("PUT", "/quotas", {"entity": {}, "values": {"producer_byte_rate": 1}}, 400),
        ("PUT", "/quotas", {"entity": {"user": "a"}, "values": {"nonsense": 1}}, 400),
        ("PATCH", "/configs", {"set": {"log.retention.ms": "soon"}}, 400),
        ("PATCH", "/topics/wrongly/configs", {"set": {"x" * 40_000: "1"}}, 400),
        ("PATCH", "/topics/wrongly/configs", {"set": {"retention.ms": "1" * 40_000}}, 400),
        ("GET", f"/topics/{'x' * 3000}", None, 400),
        ("GET", f"/groups/{'x' * 3000}", None, 400),
        ("GET", "/nodes/7", None, 404),
        ("GET", "/nodes/7/configs", None, 404),
        ("POST", "/nodes/7/drain", {}, 404),
        ("POST", "/nodes/1/drain", {}, 409),
        ("GET", "/pipelines/nothing", None, 404),
    ],
)
def test_impossible_operation_returns_error(root: ApiClient, method: str, path: str, body: Any, status: int) -> None:
    root.post("/topics", {"name": "wrongly", "partitions": 1})
    data = None if body is None else json.dumps(body).encode()
    assert is_error(root.send(method, path, data), status)


@pytest.mark.parametrize(
    ("method", "path", "body", "limit"),
    [
        ("POST", "/users", {"name": "NAME", "password": "correct horse", "iterations": 4096}, USER_NAME_CHARACTERS_MAX),
        ("PATCH", "/configs", {"set": {"NAME": "value"}}, CONFIG_NAME_CHARACTERS_MAX),
        ("POST", "/nodes", {"id": 7, "host": "NAME", "port": 1, "dry_run": True}, HOST_CHARACTERS_MAX),
    ],
)
def test_name_one_above_its_limit_is_rejected(
    node: AuthorizingNode, root: ApiClient, method: str, path: str, body: Any, limit: int
) -> None:
    assert root.send(method, path, insert_name(body, "x" * limit)).status in (200, 201)
    before = node.services.image.applied_index
    rejected = root.send(method, path, insert_name(body, "x" * (limit + 1)))
    assert is_rejected(rejected.status, rejected.json), rejected
    assert node.services.image.applied_index == before


def test_group_id_above_its_limit_is_rejected(node: AuthorizingNode, root: ApiClient) -> None:
    assert root.post("/topics", {"name": "t", "partitions": 1}).status == 200
    rejected = root.post(f"/groups/{'g' * (GROUP_ID_CHARACTERS_MAX + 1)}/offsets", {"topics": ["t"], "to": "earliest"})
    assert rejected.status in (400, 404, 409), rejected
    assert not node.services.image.groups


def is_rejected(status: int, answer: Any) -> bool:
    """Return whether a request was rejected. Plans that cannot be executed are returned with 200 and the reason."""
    return 400 <= status < 500 or bool(answer.get("refused"))


def insert_name(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {name if key == "NAME" else key: insert_name(each, name) for key, each in value.items()}
    return name if value == "NAME" else value
