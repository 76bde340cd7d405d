"""The audit log contains changes and denials over HTTP, with the principal of the session."""

from __future__ import annotations

import json
import logging

import pytest

from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient
from tests.console.rest.operation_cases import TOPIC, prepare_topic


def audit_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [json.loads(record.getMessage()) for record in caplog.records if record.name == "chronik.audit"]


def test_change_is_audited_with_principal(root: ApiClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "chronik.audit"):
        assert root.post("/topics", {"name": "audited", "partitions": 1}).status == 200
    (line,) = audit_lines(caplog)
    assert line["event"] == "changed"
    assert (line["principal"], line["host"], line["api"]) == ("User:root", "127.0.0.1", "CreateTopics")
    assert line["changed"] == ["audited"]


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        (f"/topics/{TOPIC}", "Describe"),
        ("/cluster", "Describe"),
        ("/users", "Describe"),
        ("/configs", "DescribeConfigs"),
    ],
)
def test_denied_request_is_audited(
    node: AuthorizingNode,
    root: ApiClient,
    mallory: ApiClient,
    caplog: pytest.LogCaptureFixture,
    path: str,
    operation: str,
) -> None:
    prepare_topic(node, root)
    with caplog.at_level(logging.INFO, "chronik.audit"):
        assert mallory.get(path).status == 403
    assert ("refused", "User:mallory", operation) in [
        (line["event"], line["principal"], line.get("operation")) for line in audit_lines(caplog)
    ]


def test_omitted_items_are_not_audited_as_denials(
    node: AuthorizingNode, root: ApiClient, mallory: ApiClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A page of topics omits sizes and configs without a permission. The client did not request them explicitly."""
    prepare_topic(node, root)
    acl = {"resource": "topic", "name": TOPIC, "principal": "User:mallory", "operation": "describe"}
    assert root.post("/acls", {"acls": [acl]}).status == 201
    try:
        with caplog.at_level(logging.INFO, "chronik.audit"):
            (shown,) = mallory.get("/topics").json["items"]
            assert mallory.first_event("/stream").status == 200
        assert (shown["name"], shown["bytes"], shown["cleanup_policy"]) == (TOPIC, None, None)
        assert audit_lines(caplog) == []
        assert root.get(f"/topics/{TOPIC}").json["bytes"] is not None
    finally:
        root.post("/acls/delete", {"acls": [acl]})


def test_logs_contain_no_messages_or_passwords(root: ApiClient, caplog: pytest.LogCaptureFixture) -> None:
    root.post("/topics", {"name": "audited", "partitions": 1})
    with caplog.at_level(logging.DEBUG):
        assert root.post("/topics/audited/messages", {"key": "key-hidden", "value": "value-hidden"}).status == 201
        assert root.post("/users", {"name": "eve", "password": "password-hidden", "iterations": 4096}).status == 201
        assert root.get("/topics/audited/messages?from=start").json["items"]
        assert root.post("/login", {"username": "eve", "password": "password-hidden"}).status == 200
    assert "hidden" not in caplog.text
    assert root.cookie.partition("=")[2] not in caplog.text
