"""The operations that the principal may perform, as reported by the admin API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient
from tests.console.rest.conftest import log_in_as
from tests.console.rest.operation_cases import GROUP, TOPIC, TRANSACTION, prepare_group, prepare_transaction

NOTHING: dict[str, list[str]] = {"topic": [], "group": [], "transactional-id": [], "subject": []}


@contextmanager
def granted(root: ApiClient, **acl: str) -> Iterator[None]:
    """Create an ACL for alice within the context."""
    body = {"acls": [{"principal": "User:alice", **acl}]}
    assert root.post("/acls", body).status == 201
    try:
        yield
    finally:
        assert root.post("/acls/delete", body).status == 200


def test_permissions_of_user_without_acls_are_empty(mallory: ApiClient) -> None:
    expected = {"cluster": [], "any": NOTHING, "all": NOTHING, "pipelines": False, "subject": []}
    assert mallory.get("/permissions?subject=orders-value").json == expected


def test_permissions_of_super_user_are_complete(root: ApiClient) -> None:
    found = root.get("/permissions").json
    assert "alter" in found["cluster"]
    assert found["any"] == found["all"]
    assert {"read", "write", "delete", "describe"} <= set(found["all"]["topic"])
    assert (found["pipelines"], found["subject"]) == (True, None)


def test_permissions_follow_acls(node: AuthorizingNode, root: ApiClient) -> None:
    alice = log_in_as(node, "alice")
    with granted(root, resource="topic", name="team-", pattern="prefixed", operation="create"):
        found = alice.get("/permissions").json
        assert (found["any"]["topic"], found["all"]["topic"]) == (["create"], [])
    with granted(root, resource="group", name="*", operation="read"):
        assert alice.get("/permissions").json["all"]["group"] == ["read", "describe"]
        with granted(root, resource="group", name="secret", operation="read", permission="deny"):
            assert alice.get("/permissions").json["all"]["group"] == ["describe"]
    assert alice.get("/permissions").json["all"] == NOTHING


def test_resources_list_authorized_operations(node: AuthorizingNode, root: ApiClient) -> None:
    prepare_group(node, root)
    prepare_transaction(node, root)
    alice = log_in_as(node, "alice")
    with (
        granted(root, resource="topic", name=TOPIC, operation="write"),
        granted(root, resource="group", name=GROUP, operation="describe"),
        granted(root, resource="transactional-id", name=TRANSACTION, operation="describe"),
    ):
        (topic,) = alice.get("/topics").json["items"]
        (group,) = alice.get("/groups").json["items"]
        (transaction,) = alice.get("/transactions").json["items"]
        details = alice.get(f"/groups/{GROUP}").json
        assert topic["authorized_operations"] == ["write", "describe"]
        assert alice.get(f"/topics/{TOPIC}").json["authorized_operations"] == ["write", "describe"]
        assert group["authorized_operations"] == details["authorized_operations"] == ["describe"]
        assert details["readable_topics"] == []
        assert transaction["authorized_operations"] == ["describe"]
