"""Reads by version, id and GUID, and lists with filters and pages."""

from __future__ import annotations

import pytest

from chronik import limits
from chronik.limits import SCHEMAS_PER_RESPONSE_MAX
from chronik.registry import service
from chronik.registry.entities import ContextId, SchemaRequest, SubjectVersion
from chronik.registry.errors import InvalidVersionError, SchemaNotFoundError, VersionNotFoundError
from tests.registry.registry_node import (
    RegistryNode,
    build_metadata,
    build_record,
    build_referring_request,
    build_request,
    build_rule_set,
    catch_error,
    run_with_registry,
)


async def register_three(node: RegistryNode) -> None:
    await node.register("b", "id")
    await node.register("a", "id")
    await node.register("a", "id", "x=0")
    await node.register(":.lab:a", "x")


def is_b(subject: str) -> bool:
    return subject == "b"


@pytest.mark.parametrize("version", ["latest", "LATEST", " latest ", -1, "-1"])
def test_latest_version_is_the_last_one_that_is_not_deleted(version: str | int) -> None:
    async def scenario(node: RegistryNode) -> None:
        await register_three(node)
        assert (await node.registry.get_version("a", version)).version == 2
        await node.registry.delete_version("a", 2)
        assert (await node.registry.get_version("a", version)).version == 1
        assert (await node.registry.get_version("a", version, deleted=True)).version == 1

    run_with_registry(scenario)


@pytest.mark.parametrize("version", ["", "first", "0", -2, "1.0", "2147483648", "9" * 5000, "١"])
def test_invalid_version_is_rejected(version: str | int) -> None:
    async def scenario(node: RegistryNode) -> None:
        await register_three(node)
        error = await catch_error(node.registry.get_version("a", version))
        assert isinstance(error, InvalidVersionError)
        assert isinstance(await catch_error(node.registry.get_version("a", 2**31 - 1)), VersionNotFoundError)

    run_with_registry(scenario)


def test_schema_is_found_by_id_in_the_context_of_the_subject() -> None:
    async def scenario(node: RegistryNode) -> None:
        await register_three(node)
        get = node.registry.get_by_id
        found = await get(1)
        assert (found.schema, found.subject, found.version, found.max_id) == (build_record("id"), None, None, None)
        assert (await get(1, fetch_max_id=True)).max_id == 2
        assert ((await get(1, "b")).subject, (await get(1, "b")).version) == ("b", 1)
        assert (await get(1, ":.lab:")).schema == build_record("x")
        assert (await get(1, ":.lab:a")).subject == ":.lab:a"
        assert (await get(1, "unknown")).schema == build_record("id")
        for missing in (get(3), get(1, ":.lab:b"), get(2, ":.lab:"), get(1, ":.other:")):
            assert isinstance(await catch_error(missing), SchemaNotFoundError)

    run_with_registry(scenario)


def test_id_is_found_in_other_contexts_by_the_name_of_the_subject() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.registry.set_mode(":.lab:", "IMPORT")
        await node.register(":.lab:a", "x", id=77)
        assert (await node.registry.get_by_id(77, "a")).subject == ":.lab:a"
        assert isinstance(await catch_error(node.registry.get_by_id(77)), SchemaNotFoundError)
        assert await node.registry.list_subjects_of_id(77, "a") == [":.lab:a"]

    run_with_registry(scenario)


def test_schema_of_invisible_subjects_is_not_found() -> None:
    async def scenario(node: RegistryNode) -> None:
        await register_three(node)
        guid = (await node.registry.get_version("a", 2)).guid
        assert (await node.registry.get_by_id(1, visible=is_b)).schema
        assert (await node.registry.get_by_id(1, "a", visible=is_b)).subject == "b"
        assert await node.registry.list_subjects_of_id(1, visible=is_b) == ["b"]
        assert await node.registry.list_ids_of_guid(guid, visible=is_b) == []
        for hidden in (
            node.registry.get_by_id(2, visible=is_b),
            node.registry.get_by_guid(guid, visible=is_b),
            node.registry.list_versions_of_id(2, visible=is_b),
        ):
            assert isinstance(await catch_error(hidden), SchemaNotFoundError)

    run_with_registry(scenario)


def test_versions_and_subjects_of_an_id_are_listed() -> None:
    async def scenario(node: RegistryNode) -> None:
        await register_three(node)
        assert await node.registry.list_versions_of_id(1) == [SubjectVersion("a", 1), SubjectVersion("b", 1)]
        assert await node.registry.list_subjects_of_id(1, offset=1, limit=1) == ["b"]
        assert isinstance(await catch_error(node.registry.list_subjects_of_id(9)), SchemaNotFoundError)

    run_with_registry(scenario)


def test_schema_is_found_by_guid() -> None:
    async def scenario(node: RegistryNode) -> None:
        await register_three(node)
        found = await node.registry.get_version("a", 1)
        by_guid = await node.registry.get_by_guid(found.guid)
        assert (by_guid.schema, by_guid.guid, by_guid.subject) == (found.schema, found.guid, None)
        await node.register(":.lab:c", "id", "x=0")
        lab = await node.registry.get_version(":.lab:c", 1)
        assert await node.registry.list_ids_of_guid(lab.guid) == [ContextId(".", 2), ContextId(".lab", 2)]
        for unknown in ("00000000-0000-0000-0000-000000000000", "nonsense"):
            error = await catch_error(node.registry.get_by_guid(unknown))
            assert error.message == f"Schema {unknown} not found"
            assert await node.registry.list_ids_of_guid(unknown) == []

    run_with_registry(scenario)


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        (":*:", [":.lab:a", ":.lab:ab", ":.labs:a", "a", "b"]),
        (":.", [":.lab:a", ":.lab:ab", ":.labs:a", "a", "b"]),
        ("", ["a", "b"]),
        (":.:", ["a", "b"]),
        ("a", ["a"]),
        (":.:a", ["a"]),
        (":.lab:", [":.lab:a", ":.lab:ab"]),
        (":.lab", [":.lab:a", ":.lab:ab", ":.labs:a"]),
        (":.lab:ab", [":.lab:ab"]),
        (":*:a", [":.lab:a", ":.lab:ab", ":.labs:a", "a"]),
        ("c", []),
    ],
)
def test_prefix_selects_subjects(prefix: str, expected: list[str]) -> None:
    async def scenario(node: RegistryNode) -> None:
        for subject in ("b", "a", ":.lab:ab", ":.lab:a", ":.labs:a"):
            await node.register(subject, "id")
        assert await node.registry.list_subjects(prefix) == expected
        assert [each.subject for each in await node.registry.list_schemas(prefix)] == expected
        assert await node.registry.list_subjects(prefix, offset=1, limit=2) == expected[1:3]
        assert await node.registry.list_subjects(prefix, visible=is_b) == [name for name in expected if name == "b"]

    run_with_registry(scenario)


def test_schemas_are_listed_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(node: RegistryNode) -> None:
        await register_three(node)
        await node.registry.register("a", build_request("id", "y=0", rule_set=build_rule_set("check")))
        await node.registry.delete_version("a", 1)
        list_schemas = node.registry.list_schemas

        async def numbers(**options: object) -> list[tuple[str, int]]:
            return [(each.subject, each.version) for each in await list_schemas("", **options)]  # type: ignore[arg-type]

        assert await numbers() == [("a", 2), ("a", 3), ("b", 1)]
        assert await numbers(deleted=True) == [("a", 1), ("a", 2), ("a", 3), ("b", 1)]
        assert await numbers(latest_only=True) == [("a", 3), ("b", 1)]
        assert await numbers(rule_type="CEL") == [("a", 3)]
        assert await numbers(rule_type="CEL", offset=1) == []
        assert await numbers(offset=1, limit=1) == [("a", 3)]
        assert await numbers(offset=3) == []
        assert await numbers(visible=is_b) == [("b", 1)]
        monkeypatch.setattr(service, "SCHEMAS_RESPONSE_BYTES_MAX", 2 * len(build_record("id", "x=0")))
        assert await numbers() == [("a", 2)]
        monkeypatch.setattr(service, "SCHEMAS_RESPONSE_BYTES_MAX", 1)
        assert await numbers(offset=1) == [("a", 3)]
        monkeypatch.setattr(service, "SCHEMAS_RESPONSE_BYTES_MAX", limits.SCHEMAS_RESPONSE_BYTES_MAX)
        monkeypatch.setattr(service, "SCHEMAS_PER_RESPONSE_MAX", 2)
        for limit in (-1, 0, 2, SCHEMAS_PER_RESPONSE_MAX):
            assert await numbers(limit=limit) == [("a", 2), ("a", 3)]

    run_with_registry(scenario)


def test_contexts_are_listed_if_a_subject_is_visible() -> None:
    async def scenario(node: RegistryNode) -> None:
        for subject in (":.lab:a", ":.other:b", "x"):
            await node.register(subject, "id")
        assert await node.registry.list_contexts() == [".", ".lab", ".other"]
        assert await node.registry.list_contexts(".l") == [".lab"]
        assert await node.registry.list_contexts(offset=1, limit=1) == [".lab"]
        assert await node.registry.list_contexts(visible=lambda name: name == ":.lab:a") == [".", ".lab"]
        assert await node.registry.list_contexts(visible=lambda name: name == ":.other:") == [".", ".other"]

    run_with_registry(scenario)


def test_latest_version_with_metadata_is_found() -> None:
    async def scenario(node: RegistryNode) -> None:
        for number, owner in enumerate(("x", "y", "x", "y")):
            await node.register("a", "id", f"f{number}=0", metadata=build_metadata(owner=owner, tier="1"))
        get = node.registry.get_latest_with_metadata
        assert (await get("a", {"owner": "x"})).version == 3
        assert (await get("a", {})).version == 4
        await node.registry.delete_version("a", 3)
        assert (await get("a", {"owner": "x", "tier": "1"})).version == 1
        assert (await get("a", {"owner": "x"}, deleted=True)).version == 3
        error = await catch_error(get("a", {"owner": "z"}))
        assert (error.error_code, error.message) == (40403, "Schema not found")
        assert (await catch_error(get("b", {"owner": "z"}))).error_code == 40401

    run_with_registry(scenario)


def test_formats_are_rendered_and_unknown_ones_are_ignored() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        lines = await node.registry.register("lines", build_referring_request("orders"))
        resolved = await node.registry.get_by_id(lines.id, format="resolved")
        assert resolved.schema != lines.schema
        assert (await node.registry.get_by_guid(lines.guid, format=" resolved ")).schema == resolved.schema
        assert (await node.registry.get_version("lines", 1, format="pretty")).schema == lines.schema
        proto = 'syntax = "proto3"; message M { int32 a = 1; }'
        found = await node.registry.register("proto", SchemaRequest(schema=proto, schema_type="PROTOBUF"))
        serialized = await node.registry.format_schema(found, "serialized")
        assert "syntax" not in serialized.schema
        again = SchemaRequest(schema=serialized.schema, schema_type="PROTOBUF")
        assert (await node.registry.look_up("proto", again)).version == 1

    run_with_registry(scenario)


def test_types_are_listed() -> None:
    async def scenario(node: RegistryNode) -> None:
        assert node.registry.list_types() == ["JSON", "PROTOBUF", "AVRO"]

    run_with_registry(scenario)
