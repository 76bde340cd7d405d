"""`chronik schemas export` and `import`, between the registries of two nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.api.authorizing_node import AuthorizingNode
from tests.cli.schemas.conftest import Schemas, get_url
from tests.console.registry.registry_api import RegistryApi

USER = '{"type":"record","name":"User","fields":[{"name":"name","type":"string"}]}'
NEXT_USER = (
    '{"type":"record","name":"User","fields":[{"name":"name","type":"string"},{"name":"age","type":"int","default":0}]}'
)
GROUP = '{"type":"record","name":"Group","fields":[{"name":"owner","type":"User"}]}'
LISTINGS = ("/subjects?deleted=true", "/schemas?deleted=true&subjectPrefix=:*:", "/contexts")


@pytest.fixture
def source(node: AuthorizingNode) -> RegistryApi:
    """A registry with references, contexts, deleted versions, configs and modes, whose ids have gaps."""
    registry = RegistryApi(node.http)
    registry.register("gap", '"string"')
    for query in ("", "?permanent=true"):
        assert registry.send("DELETE", f"/subjects/gap{query}").status == 200
    registry.register("users", USER)
    registry.register("groups", GROUP, references=[{"name": "User", "subject": "users", "version": 1}])
    registry.register("users", NEXT_USER, metadata={"properties": {"owner": "team"}})
    registry.register(":.lab:users", USER)
    registry.register("events/a b", '{"type":"object"}', schemaType="JSON")
    registry.register("proto", 'syntax = "proto3"; message A { string b = 1; }', schemaType="PROTOBUF")
    registry.register("old", '"long"')
    for path, body in (
        ("/config/users", {"compatibility": "FULL", "normalize": True}),
        ("/config/:.lab:", {"compatibility": "NONE"}),
        ("/config", {"compatibility": "FORWARD"}),
        ("/mode/proto", {"mode": "READONLY"}),
    ):
        assert registry.send("PUT", path, body).status == 200
    assert registry.send("DELETE", "/subjects/old/versions/1").status == 200
    return registry


def read_content(registry: RegistryApi) -> dict[str, Any]:
    """Return the listings, configs and modes of a registry, without times."""
    found: dict[str, Any] = {}
    for path in LISTINGS:
        listed = registry.get(path).json
        found[path] = [{key: value for key, value in each.items() if key != "ts"} if isinstance(each, dict) else each
                       for each in listed]  # fmt: skip
    for path in ("/config", "/config/users", "/config/:.lab:", "/mode/proto", "/mode/users"):
        found[path] = registry.get(path).json
    return found


def test_import_of_exported_file_keeps_ids_versions_and_settings(
    source: RegistryApi, node: AuthorizingNode, other_node: AuthorizingNode, run: Schemas, tmp_path: Path
) -> None:
    file = tmp_path / "schemas.jsonl"
    exported = run("export", file, node=node)
    assert exported.lines == [f"exported 7 versions of 6 subjects to {file}"]
    planned = run("import", file, "--dry-run", "--json", node=other_node).json
    assert (planned["missing"], planned["conflicts"]) == (7, [])
    target = RegistryApi(other_node.http)
    assert target.get("/subjects").json == []
    imported = run("import", file, "--json", node=other_node).json
    assert (imported["verified"], imported["registered"], imported["deleted"]) == (True, 7, 1)
    assert read_content(target) == read_content(source)
    again = run("import", file, "--json", node=other_node).json
    assert (again["registered"], again["present"], again["deleted"]) == (0, 7, 0)
    assert read_content(target) == read_content(source)
    new_id = target.register("new", '{"type":"record","name":"New","fields":[]}')
    assert new_id > max(each["id"] for each in source.get("/schemas?deleted=true&subjectPrefix=:*:").json)


def test_import_from_registry_can_be_limited_to_prefix(
    source: RegistryApi, node: AuthorizingNode, other_node: AuthorizingNode, run: Schemas
) -> None:
    limited = run("import", "--from", get_url(node), "--prefix", "users", node=other_node)
    assert limited.code == 0, limited.err
    target = RegistryApi(other_node.http)
    assert target.get("/subjects?subjectPrefix=:*:").json == ["users"]
    assert target.get("/subjects/users/versions/1").json["id"] == source.get("/subjects/users/versions/1").json["id"]
    itself = run("import", "--from", get_url(node), node=node)
    assert itself.code == 1
    assert "is the registry to import into" in itself.err


def test_import_with_conflicting_schemas_changes_nothing(
    source: RegistryApi, node: AuthorizingNode, other_node: AuthorizingNode, run: Schemas, tmp_path: Path
) -> None:
    target = RegistryApi(other_node.http)
    for number in range(3):
        target.register(
            "users", f'{{"type":"record","name":"Other","fields":[{{"name":"a","type":"int","default":{number}}}]}}'
        )
    before = target.get("/schemas?deleted=true").json
    file = tmp_path / "schemas.jsonl"
    run("export", file, node=node)
    plan = run("import", file, "--dry-run", node=other_node)
    assert plan.code == 1
    assert "conflict: version 1 of subject users exists with another schema or id (1)" in plan.out
    assert "which belongs to another schema" in plan.out
    refused = run("import", file, node=other_node)
    assert refused.code == 1
    assert "has conflicting schemas" in refused.err
    assert target.get("/schemas?deleted=true").json == before
    assert target.get("/mode/users").status == 404


def test_export_to_stdout_is_readable(source: RegistryApi, node: AuthorizingNode, run: Schemas) -> None:
    lines = [json.loads(line) for line in run("export", "-", node=node).lines]
    assert lines[0]["kind"] == "header"
    assert lines[-1] == {"kind": "end", "schemas": 7}
    subjects = [line["subject"] for line in lines if line["kind"] == "schema"]
    assert subjects.index("users") < subjects.index("groups"), "a referenced version comes first"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[:-1], "is incomplete"),
        (lambda lines: [*lines[:-2], lines[-1]], "is incomplete"),
        (lambda lines: [*lines[:3], "{", *lines[3:]], "line 4 is damaged"),
        (lambda lines: ["{}", *lines[1:]], "is not a file of chronik schemas export"),
        (lambda lines: [], "is incomplete"),
    ],
    ids=["without end", "without last version", "damaged line", "other file", "empty"],
)
def test_damaged_file_is_not_imported(
    source: RegistryApi,
    node: AuthorizingNode,
    other_node: AuthorizingNode,
    run: Schemas,
    tmp_path: Path,
    change: Any,
    message: str,
) -> None:
    file = tmp_path / "schemas.jsonl"
    run("export", file, node=node)
    file.write_text("".join(f"{line}\n" for line in change(file.read_text().splitlines())))
    refused = run("import", file, node=other_node)
    assert refused.code == 1
    assert message in refused.err
    assert RegistryApi(other_node.http).get("/subjects?deleted=true").json == []
