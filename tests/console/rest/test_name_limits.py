"""Name length limits of the admin API: those of the Kafka API handlers apply."""

from __future__ import annotations

from typing import Any

import pytest

from chronik.limits import CONFIG_NAME_CHARACTERS_MAX, GROUP_ID_CHARACTERS_MAX, HOST_CHARACTERS_MAX
from chronik.metadata.handlers.security import USER_NAME_CHARACTERS_MAX
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient


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
