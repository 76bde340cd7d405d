"""`chronik schemas` list, show, register, check, diff, config and delete, with the registry of a node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.api.authorizing_node import AuthorizingNode
from tests.cli.schemas.conftest import Schemas

USER: dict[str, Any] = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
AGE: dict[str, Any] = {"name": "age", "type": "int", "default": 0}
ID: dict[str, Any] = {"name": "id", "type": "string"}


def with_field(schema: dict[str, Any], field: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "fields": [*schema["fields"], field]}


@pytest.fixture
def write(tmp_path: Path) -> dict[str, Path]:
    """Schema files by name."""
    documents = {
        "user": USER, "age": with_field(USER, AGE), "id": with_field(USER, ID),
        "group": {"type": "array", "items": "User"},
    }  # fmt: skip
    found = {}
    for name, document in documents.items():
        found[name] = tmp_path / f"{name}.avsc"
        found[name].write_text(json.dumps(document))
    found["proto"] = tmp_path / "user.proto"
    found["proto"].write_text('syntax = "proto3";\nmessage User {\n  string name = 1;\n}\n')
    return found


def test_registry_is_found_through_brokers(node: AuthorizingNode, run: Schemas, write: dict[str, Path]) -> None:
    cluster = ("--bootstrap-server", node.bootstrap)
    assert run("register", "users", write["user"], *cluster).lines == ["users: version 1, id 1"]
    assert [each["subject"] for each in run("list", "--json", *cluster).json] == ["users"]


def test_registered_versions_are_listed_and_shown(node: AuthorizingNode, run: Schemas, write: dict[str, Path]) -> None:
    for name in ("user", "age", "user"):
        registered = run("register", "users", write[name], "--json", node=node).json
    assert registered == {"subject": "users", "version": 1, "id": 1}
    run("register", "proto", write["proto"], node=node)
    rows = [line.split() for line in run("list", node=node).lines[1:]]
    assert rows == [["proto", "1", "3", "PROTOBUF", "BACKWARD"], ["users", "1,", "2", "2", "AVRO", "BACKWARD"]]
    assert run("list", "--prefix", "us", "--json", node=node).json[0]["versions"] == [1, 2]
    shown = run("show", "users", node=node).lines
    assert shown[0] == "users: version 2, id 2, AVRO"
    assert json.loads("\n".join(shown[1:])) == with_field(USER, AGE)
    assert json.loads(run("show", "users", "--version", "1", "--raw", node=node).out) == USER
    by_id = run("show", "--id", "1", "--json", node=node).json
    assert (by_id["id"], by_id["versions"]) == (1, [{"subject": "users", "version": 1}])
    assert "string name = 1;" in run("show", "proto", "--raw", node=node).out


def test_missing_subject_or_id_is_an_error(node: AuthorizingNode, run: Schemas) -> None:
    missing = run("show", "absent", node=node)
    assert (missing.code, missing.out) == (1, "")
    assert "Subject 'absent' not found." in missing.err
    assert "no schema has id 7" in run("show", "--id", "7", node=node).err
    assert "give either a SUBJECT or --id" in run("show", node=node).err


def test_check_reports_compatibility_in_exit_code(node: AuthorizingNode, run: Schemas, write: dict[str, Path]) -> None:
    run("register", "users", write["user"], node=node)
    compatible = run("check", "users", write["age"], node=node)
    assert compatible.lines == ["compatible with users (BACKWARD)"]
    incompatible = run("check", "users", write["id"], "--json", node=node)
    assert incompatible.code == 1
    verdict = json.loads(incompatible.out)
    assert not verdict["compatible"]
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in "".join(verdict["messages"])
    assert run("check", "users", "/absent.avsc", node=node).code == 2
    rejected = run("register", "users", write["id"], node=node)
    assert rejected.code == 1
    assert "incompatible with an earlier schema" in rejected.err


def test_diff_shows_changed_elements_and_compatibility(
    node: AuthorizingNode, run: Schemas, write: dict[str, Path]
) -> None:
    for name in ("user", "age"):
        run("register", "users", write[name], node=node)
    versions = run("diff", "users", node=node)
    assert versions.lines == ['+ fields.age: "int", default 0', "compatible with users version 1 (BACKWARD)"]
    file = run("diff", "users", "1", write["id"], node=node)
    assert file.code == 1
    assert file.out.splitlines()[:2] == ['+ fields.id: "string"', "incompatible with users version 1 (BACKWARD)"]
    assert '+      "name": "age",' in run("diff", "users", "1", "2", "--unified", node=node).out
    assert run("diff", "absent", node=node).code == 2


def test_schema_with_reference_is_registered_and_shown(
    node: AuthorizingNode, run: Schemas, write: dict[str, Path]
) -> None:
    run("register", "users", write["user"], node=node)
    reference = ("--reference", "User=users:1")
    assert run("register", "groups", write["group"], *reference, node=node).lines == ["groups: version 1, id 2"]
    assert "reference User: users version 1" in run("show", "groups", node=node).lines
    protected = run("delete", "users", "--yes", node=node)
    assert protected.code == 1
    assert "One or more references exist" in protected.err


def test_config_and_mode_are_set_and_removed(node: AuthorizingNode, run: Schemas, write: dict[str, Path]) -> None:
    run("register", "users", write["user"], node=node)
    inherited = ["users: compatibility BACKWARD (inherited)", "users: mode READWRITE (inherited)"]
    assert run("config", "users", node=node).lines == inherited
    changed = run("config", "users", "--compatibility", "none", "--mode", "readonly", node=node).lines
    assert changed == ["users: compatibility NONE", "users: mode READONLY"]
    assert "is in read-only mode" in run("register", "users", write["id"], node=node).err
    assert run("config", "users", "--compatibility", "unset", "--mode", "unset", node=node).lines == inherited
    assert run("config", "--compatibility", "full", "--json", node=node).json["config"] == {"compatibility": "FULL"}


def test_deleted_versions_stay_readable_until_permanent_deletion(
    node: AuthorizingNode, run: Schemas, write: dict[str, Path]
) -> None:
    for name in ("user", "age"):
        run("register", "users", write[name], node=node)
    assert run("delete", "users", "--version", "1", "--yes", node=node).lines == ["deleted 1 version of users: 1"]
    assert run("list", "--deleted", node=node).lines[1].split()[:4] == ["users", "1", "(deleted),", "2"]
    assert run("show", "users", "--version", "1", "--deleted", node=node).code == 0
    deleted = run("delete", "users", "--permanent", "--yes", "--json", node=node).json
    assert deleted == {"subject": "users", "versions": [1, 2], "permanent": True}
    assert run("list", "--deleted", "--json", node=node).json == []


def test_unreachable_registry_is_an_error(run: Schemas) -> None:
    failed = run("list", "--registry", "http://127.0.0.1:1")
    assert failed.code == 1
    assert "schema registry http://127.0.0.1:1: cannot connect: Connection refused" in failed.err
    invalid = run("list", "--registry", "ftp://x")
    assert "expected an URL such as" in invalid.err
