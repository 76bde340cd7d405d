"""CreateAcls, DescribeAcls and DeleteAcls, and their lines in the audit log."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.permissions import AclOperation, AclResourceType
from tests.api.authorizing_node import AuthorizingNode, error_codes_in, send_request
from tests.raw import RawClient

LITERAL, PREFIXED, MATCH, ANY = 3, 4, 2, 1
VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizingNode]:
    node = AuthorizingNode(tmp_path_factory.mktemp("node"), **{"super.users": "User:ANONYMOUS"})
    yield node
    node.close()


@pytest.fixture
def node(shared: AuthorizingNode) -> AuthorizingNode:
    shared.revoke_all()
    return shared


@pytest.fixture
def client(node: AuthorizingNode) -> Iterator[RawClient]:
    with RawClient(node.bootstrap) as client:
        yield client


def acl(name: str, pattern: int = LITERAL, who: str = "User:a", **more: Any) -> dict[str, Any]:
    return {
        "resource_type": 2,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": who,
        "host": "*",
        "operation": 3,
        "permission_type": 3,
        **more,
    }


def acl_filter(name: str | None = None, pattern: int = ANY, **more: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **more,
    }


def described(client: RawClient, version: int = 3, **asked: Any) -> list[tuple[str, int, list[str]]]:
    answer = send_request(client, "DescribeAcls", version, **acl_filter(**asked))
    assert (answer.error_code, answer.error_message) == (0, None)
    return [(each.resource_name, each.pattern_type, [acl.principal for acl in each.acls]) for each in answer.resources]


@VERSIONS
def test_created_acls_are_described_and_deleted(client: RawClient, version: int) -> None:
    made = [acl("t"), acl("t", who="User:b"), acl("t", PREFIXED), acl("*"), acl("t")]
    assert not error_codes_in(send_request(client, "CreateAcls", version, creations=made))
    assert described(client, version) == [("*", 3, ["User:a"]), ("t", 3, ["User:a", "User:b"]), ("t", 4, ["User:a"])]
    assert described(client, version, name="topic", pattern=MATCH) == [("*", 3, ["User:a"]), ("t", 4, ["User:a"])]
    filters = [acl_filter(principal_filter="User:b"), acl_filter("t", PREFIXED), acl_filter("none")]
    answer = send_request(client, "DeleteAcls", version, filters=filters)
    assert [len(each.matching_acls) for each in answer.filter_results] == [1, 1, 0]
    assert described(client, version) == [("*", 3, ["User:a"]), ("t", 3, ["User:a"])]


def test_version_0_supports_only_literal_patterns(client: RawClient) -> None:
    send_request(client, "CreateAcls", 3, creations=[acl("t", PREFIXED)])
    assert not error_codes_in(send_request(client, "CreateAcls", 0, creations=[acl("t")]))
    assert described(client) == [("t", 3, ["User:a"]), ("t", 4, ["User:a"])]
    assert described(client, 0, pattern=LITERAL) == [("t", 3, ["User:a"])]
    deleted = send_request(client, "DeleteAcls", 0, filters=[acl_filter(pattern=LITERAL)])
    assert [len(each.matching_acls) for each in deleted.filter_results] == [1]


def test_invalid_acls_are_rejected_and_valid_ones_created(client: RawClient) -> None:
    answer = send_request(client, "CreateAcls", 3, creations=[acl(""), acl("t"), acl("t", operation=ANY)])
    assert [(each.error_code, each.error_message) for each in answer.results] == [
        (ErrorCode.INVALID_REQUEST, "Invalid empty resource name"),
        (ErrorCode.NONE, None),
        (ErrorCode.INVALID_REQUEST, "Invalid operation ANY"),
    ]
    assert described(client) == [("t", 3, ["User:a"])]
    assert send_request(client, "DescribeAcls", 3, **acl_filter(operation=0)).error_code == ErrorCode.INVALID_REQUEST


def test_acls_on_subjects_are_described_and_deleted_only_by_their_type(client: RawClient) -> None:
    subject = int(AclResourceType.SUBJECT)
    creations = [acl("orders"), acl("orders-value", resource_type=subject)]
    assert not error_codes_in(send_request(client, "CreateAcls", 3, creations=creations))
    assert described(client) == [("orders", 3, ["User:a"])]
    assert described(client, resource_type_filter=subject) == [("orders-value", 3, ["User:a"])]
    deleted = send_request(client, "DeleteAcls", 3, filters=[acl_filter(), acl_filter(resource_type_filter=subject)])
    assert [len(each.matching_acls) for each in deleted.filter_results] == [1, 1]
    assert described(client, resource_type_filter=subject) == []


def test_partially_failed_acl_deletion_reports_each_error(
    node: AuthorizingNode, client: RawClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "chronik.audit")
    send_request(client, "CreateAcls", 3, creations=[acl("a"), acl("b")])
    monkeypatch.setattr("chronik.admin.acls.ACLS_PER_COMMAND_MAX", 1)
    propose = node.services.store.propose

    async def propose_once(command: Any) -> Any:
        monkeypatch.setattr(node.services.store, "propose", fail)
        return await propose(command)

    async def fail(command: Any) -> Any:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    monkeypatch.setattr(node.services.store, "propose", propose_once)
    (result,) = send_request(client, "DeleteAcls", 3, filters=[acl_filter()]).filter_results
    monkeypatch.undo()
    assert [(each.resource_name, each.error_code) for each in result.matching_acls] == [("a", 0), ("b", 41)]
    assert described(client) == [("b", 3, ["User:a"])]
    assert [(len(line["changed"]), line["failed"]) for line in audit_lines(caplog)] == [(2, 0), (1, 1)]


def audit_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(record.getMessage()) for record in caplog.records if record.name == "chronik.audit"]


def test_audit_log_contains_principal_and_changed_resources(
    client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "chronik.audit")
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("new", "new2", "no\nname")]
    send_request(client, "CreateTopics", 7, topics=topics)
    send_request(client, "CreateTopics", 7, topics=topics[:1], validate_only=True)
    config = {"name": "retention.ms", "value": "60000"}
    resource = {"resource_type": 2, "resource_name": "new", "configs": [config]}
    send_request(client, "IncrementalAlterConfigs", 1, resources=[resource])
    send_request(client, "CreateAcls", 3, creations=[acl("new")])
    send_request(client, "DeleteAcls", 3, filters=[acl_filter()])
    send_request(client, "DeleteTopics", 6, topics=[{"name": "new"}, {"name": "new2"}])
    who = {"event": "changed", "principal": "User:ANONYMOUS", "host": "127.0.0.1"}
    about = "Allow User:a from *: Read Literal Topic new"
    assert audit_lines(caplog) == [
        {**who, "api": "CreateTopics", "changed": ["new", "new2"], "more": 0, "failed": 1},
        {**who, "api": "IncrementalAlterConfigs", "changed": ["Topic new: retention.ms"], "more": 0, "failed": 0},
        {**who, "api": "CreateAcls", "changed": [about], "more": 0, "failed": 0},
        {**who, "api": "DeleteAcls", "changed": [about], "more": 0, "failed": 0},
        {**who, "api": "DeleteTopics", "changed": ["new", "new2"], "more": 0, "failed": 0},
    ]


def test_audit_line_limits_number_and_length_of_names(client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "chronik.audit")
    send_request(client, "CreateAcls", 3, creations=[acl(f"{number:03}") for number in range(500)])
    send_request(client, "CreateAcls", 3, creations=[acl("\x1b" * 1000)])
    many, long = audit_lines(caplog)
    assert many["more"] + len(many["changed"]) == 500
    assert 5 < len(many["changed"]) <= 20
    assert long["changed"][0].startswith("Allow User:a from *: Read Literal Topic \x1b")
    assert all(len(str(each)) < 400 for record in caplog.records for each in record.args or ()), (
        "arguments are truncated"
    )


def test_audit_log_contains_denied_operations(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "chronik.audit")
    node = AuthorizingNode(tmp_path / "data")
    try:
        with RawClient(node.bootstrap) as client:
            send_request(client, "DescribeGroups", 5, groups=["g\x1b\n"])
            send_request(client, "DescribeNodes", 0)
            send_request(client, "ListGroups", 4)
            send_request(client, "DescribeGroups", 5, groups=[str(number) for number in range(1000)])
            node.allow(AclOperation.READ, AclResourceType.TOPIC, "t")
    finally:
        node.close()
    found = audit_lines(caplog)
    who = {"event": "refused", "principal": "User:ANONYMOUS", "host": "127.0.0.1"}
    assert found[:2] == [
        {**who, "api": "DescribeGroups", "operation": "Describe", "resource": "Group", "name": "g\x1b\n"},
        {**who, "api": "DescribeNodes", "operation": "Describe", "resource": "Cluster", "name": "kafka-cluster"},
    ]
    assert len(found) == 2 + 10, "filtered list entries are not denials, and one request logs at most ten"
