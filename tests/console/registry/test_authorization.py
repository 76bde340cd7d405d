"""Authentication and authorization of every operation of the registry. An operation without a test case fails."""

from __future__ import annotations

import json

import pytest

from chronik.console.registry.operation_table import OPERATIONS, RegistryOperation
from chronik.metadata.commands.security import CreateAcls
from chronik.metadata.records import Acl
from chronik.protocol.permissions import AclOperation, AclResourceType
from tests.api.authorizing_node import ALLOW, LITERAL, PREFIXED, AuthorizingNode
from tests.console.registry.operation_cases import (
    ABSENT,
    CASES,
    DENIED,
    EMPTY,
    OTHER_BODY,
    PUBLIC,
    SCHEMA,
    RegistryOperationCase,
)
from tests.console.registry.registry_api import RegistryApi


def get_name(operation: RegistryOperation) -> str:
    return f"{operation.method} {operation.path}"


each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=get_name)


def allow(node: AuthorizingNode, operation: AclOperation, subject: str, pattern: int = LITERAL) -> None:
    """Grant alice a permission on a subject."""
    acl = Acl(AclResourceType.SUBJECT, subject, pattern, "User:alice", "*", operation, ALLOW)
    node.propose(CreateAcls((acl,)))


def resolve_path(case: RegistryOperationCase, root: RegistryApi) -> str:
    """Return the path of a case after its preparation."""
    if "{" not in case.path:
        return case.path
    found = root.get("/subjects/secret-value/versions/latest").json
    return case.path.format(id=found["id"], guid=found["guid"])


def test_every_operation_has_a_case() -> None:
    assert sorted(CASES) == sorted(map(get_name, OPERATIONS))


@each_operation
def test_operation_requires_authentication(
    node: AuthorizingNode, root: RegistryApi, operation: RegistryOperation
) -> None:
    case = CASES[get_name(operation)]
    case.prepare(root)
    path, before = resolve_path(case, root), node.stored_records()
    wrong = "Basic cm9vdDp3cm9uZw=="
    for headers in ({}, {"authorization": wrong}, {"cookie": "chronik_session=" + "x" * 43}):
        answer = RegistryApi(node.http).send(operation.method, path, case.body, **headers)
        assert answer.status == 401
        assert "secret" not in answer.body.decode()
    assert node.stored_records() == before


@each_operation
def test_operation_requires_permission(
    node: AuthorizingNode, root: RegistryApi, mallory: RegistryApi, operation: RegistryOperation
) -> None:
    case = CASES[get_name(operation)]
    case.prepare(root)
    path, before = resolve_path(case, root), node.stored_records()
    answer = mallory.send(operation.method, path, case.body)
    if case.unauthorized_result == DENIED:
        assert (answer.status, answer.error_code) == (403, 40301)
        missing = mallory.send(operation.method, path.replace("secret", "absent"), case.body)
        assert missing.body == answer.body.replace(b"secret", b"absent"), "reveals which subjects exist"
    elif case.unauthorized_result == EMPTY:
        assert answer.status == 200
        assert "secret" not in answer.body.decode()
    elif case.unauthorized_result == ABSENT:
        key, absent = path.split("/")[3], "00000000-0000-0000-0000-000000000000" if "guids" in path else "987654321"
        missing = root.get(path.replace(key, absent))
        assert (answer.status, answer.body) == (missing.status, missing.body.replace(absent.encode(), key.encode()))
    else:
        assert case.unauthorized_result == PUBLIC
        assert answer.status == 200
    if case.unauthorized_result != PUBLIC:
        assert node.stored_records() == before
    done = root.send(operation.method, path, case.body)
    assert done.status in (200, 204), done
    if case.unauthorized_result == EMPTY:
        assert "secret" in done.body.decode(), "the data exists but is hidden from others"


def test_schema_with_reference_requires_permission_on_referenced_subject(
    node: AuthorizingNode, root: RegistryApi
) -> None:
    root.register("secret-referenced", SCHEMA)
    alice = RegistryApi(node.http, "alice")
    for operation in (AclOperation.READ, AclOperation.WRITE):
        allow(node, operation, "alice-value")
    body = {"schema": '"Secret"', "references": [{"name": "Secret", "subject": "secret-referenced", "version": 1}]}
    paths = (
        "/subjects/alice-value/versions", "/subjects/alice-value", "/compatibility/subjects/alice-value/versions",
    )  # fmt: skip
    for path in paths:
        assert alice.post(path, body).error_code == 40301
        absent = alice.post(path, {**body, "references": [{"name": "A", "subject": "absent", "version": 1}]})
        assert absent.error_code == 40301
    allow(node, AclOperation.READ, "secret-referenced")
    assert alice.post(paths[0], body).status == 200


@pytest.mark.parametrize("hops", [1, 2])
def test_resolved_format_requires_permission_on_referenced_subjects(
    node: AuthorizingNode, root: RegistryApi, hops: int
) -> None:
    hidden = f"secret-resolved-{hops}"  # The permissions of earlier tests remain.
    root.register(hidden, SCHEMA)
    name, subject = "Secret", hidden
    for hop in range(hops):
        record = {"type": "record", "name": f"Reader{hop}", "fields": [{"name": "f", "type": name}]}
        reference = {"name": name, "subject": subject, "version": 1}
        body = {"schema": json.dumps(record), "references": [reference], "metadata": {"properties": {"a": "b"}}}
        name, subject = f"Reader{hop}", f"alice-{hops}-{hop}"
        assert root.post(f"/subjects/{subject}/versions", body).status == 200
    alice = RegistryApi(node.http, "alice")
    for operation in (AclOperation.READ, AclOperation.WRITE):
        allow(node, operation, "alice-", PREFIXED)
    stored = root.get(f"/subjects/{subject}/versions/1").json
    version, by_id = f"/subjects/{subject}/versions/1", f"/schemas/ids/{stored['id']}"
    reads = (version, f"{version}/schema", f"/subjects/{subject}/metadata", by_id, f"{by_id}/schema",
             f"/schemas/guids/{stored['guid']}")  # fmt: skip
    for path in reads:
        assert alice.get(path).status == 200
        denied = alice.get(f"{path}?format=%20resolved%20")
        assert denied.error_code == 40301, path
    for path in (f"/subjects/{subject}", f"/subjects/{subject}/versions"):
        assert (alice.post(path, body).status == 200) is (hops > 1), path  # A direct reference is in the request.
        assert alice.post(f"{path}?format=resolved", body).error_code == 40301, path
    allow(node, AclOperation.READ, hidden)
    for path in reads:
        resolved = alice.get(f"{path}?format=resolved")
        assert resolved.status == 200
        assert "Secret" in resolved.body.decode()


def test_alias_requires_permission_on_its_target(node: AuthorizingNode, root: RegistryApi) -> None:
    root.register("secret-target", SCHEMA)
    assert root.send("PUT", "/config/alias-value", {"alias": "secret-target"}).status == 200
    alice = RegistryApi(node.http, "alice")
    allow(node, AclOperation.READ, "alias-value")
    denied = alice.get("/subjects/alias-value/versions/latest")
    assert denied.error_code == 40301
    assert "secret" not in denied.body.decode()
    allow(node, AclOperation.READ, "secret-target")
    assert alice.get("/subjects/alias-value/versions/latest").json["subject"] == "secret-target"


def test_permission_on_prefix_shows_matching_subjects(node: AuthorizingNode, root: RegistryApi) -> None:
    for subject in ("team-a-orders", "team-b-orders", ":.lab:team-a-orders"):
        root.register(subject, OTHER_BODY["schema"])
    alice = RegistryApi(node.http, "alice")
    allow(node, AclOperation.READ, "team-a-", PREFIXED)
    listed = alice.get("/subjects?subjectPrefix=team-").json
    assert listed == ["team-a-orders"]
    schema_id = root.get("/subjects/team-a-orders/versions/1").json["id"]
    assert alice.get(f"/schemas/ids/{schema_id}/subjects").json == ["team-a-orders"]
    assert alice.get(f"/schemas/ids/{schema_id}").status == 200
    assert [each["subject"] for each in alice.get("/schemas?subjectPrefix=team-").json] == ["team-a-orders"]


def test_writer_without_read_permission_does_not_see_earlier_versions(node: AuthorizingNode, root: RegistryApi) -> None:
    root.register("secret-writable", SCHEMA, metadata={"properties": {"owner": "secret-owner"}})
    assert root.send("PUT", "/config/secret-writable", {"compatibility": "BACKWARD"}).status == 200
    alice = RegistryApi(node.http, "alice")
    allow(node, AclOperation.WRITE, "secret-writable")
    path = "/subjects/secret-writable/versions"
    incompatible = alice.post(path, {"schema": '"int"'})
    assert incompatible.error_code == 409
    assert "Secret" not in incompatible.body.decode()
    assert alice.post(path, {"schema": ""}).error_code == 40301
    inherited = alice.post(path, {"schema": SCHEMA.replace("[]", '[{"name":"f","type":"int","default":0}]')})
    assert inherited.status == 200
    assert "secret-owner" not in inherited.body.decode()
    allow(node, AclOperation.READ, "secret-writable")
    assert "Secret" in alice.post(path, {"schema": '"int"'}).body.decode()
    assert "secret-owner" in alice.post(path, {"schema": ""}).body.decode()
