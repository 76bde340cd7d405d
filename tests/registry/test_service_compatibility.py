"""Compatibility levels, groups and reserved fields, in registrations and in checks."""

from __future__ import annotations

import pytest

from chronik.registry import listing
from chronik.registry.entities import RegistryConfigChange, SchemaRequest
from chronik.registry.errors import IncompatibleSchemaError, UnprocessableSchemaError, VersionNotFoundError
from tests.registry.registry_node import (
    RegistryNode,
    build_metadata,
    build_record,
    build_request,
    catch_error,
    run_with_registry,
)

VERDICTS = {
    "NONE": (True, True, True),
    "BACKWARD": (True, False, True),
    "BACKWARD_TRANSITIVE": (True, False, True),
    "FORWARD": (False, True, True),
    "FORWARD_TRANSITIVE": (False, True, True),
    "FULL": (False, False, True),
    "FULL_TRANSITIVE": (False, False, True),
}
"""By level: whether a version may remove a required field, add one, and change an optional one."""


@pytest.mark.parametrize("level", VERDICTS)
def test_level_decides_which_changes_are_compatible(level: str) -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.set_level(level, "orders")
        await node.register("orders", "a", "b")
        removed = await node.registry.check_compatibility("orders", build_request("a"))
        added = await node.registry.check_compatibility("orders", build_request("a", "b", "c"))
        optional = await node.registry.check_compatibility("orders", build_request("a", "b", "c=0"))
        assert (not removed, not added, not optional) == VERDICTS[level]
        for messages in filter(None, (removed, added)):
            assert messages[-1] == f"{{validateFields: 'false', compatibility: '{level}'}}"

    run_with_registry(scenario)


@pytest.mark.parametrize(("level", "is_compatible"), [("BACKWARD", True), ("BACKWARD_TRANSITIVE", False)])
def test_transitive_level_compares_with_all_versions(level: str, is_compatible: bool) -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.set_level("NONE", "orders")
        await node.register("orders", "a")
        await node.register("orders", "a", "b")
        await node.set_level(level, "orders")
        messages = await node.registry.check_compatibility("orders", build_request("a", "b", "c=0"))
        assert (not messages) is is_compatible
        if messages:
            assert "{oldSchemaVersion: 1}" in messages

    run_with_registry(scenario)


def test_deleted_versions_do_not_count() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "a")
        await node.registry.delete_version("orders", 1)
        assert await node.register("orders", "b") == (2, 2)

    run_with_registry(scenario)


def test_check_against_a_version_ignores_the_others() -> None:
    async def scenario(node: RegistryNode) -> None:
        check = node.registry.check_compatibility
        await node.set_level("NONE", "orders")
        await node.register("orders", "a")
        await node.register("orders", "b")
        await node.set_level("BACKWARD", "orders")
        assert await check("orders", build_request("a", "c=0"), 1) == []
        assert await check("orders", build_request("a", "c=0"), "latest") != []
        assert await check("unknown", build_request("a"), "latest") == []
        assert isinstance(await catch_error(check("orders", build_request("a"), 3)), VersionNotFoundError)
        assert isinstance(await catch_error(check("orders", SchemaRequest(), 1)), UnprocessableSchemaError)

    run_with_registry(scenario)


def test_full_level_reports_both_directions() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.set_level("FULL", "orders")
        await node.register("orders", "a")
        messages = await node.registry.check_compatibility("orders", build_request("b"))
        assert "in the old schema has no default value and is missing in the new schema" in messages[0]
        assert "in the new schema has no default value and is missing in the old schema" in messages[1]
        assert messages[2] == "{oldSchemaVersion: 1}"

    run_with_registry(scenario)


def test_long_schema_is_truncated_in_messages() -> None:
    async def scenario(node: RegistryNode) -> None:
        doc = "x" * 20_000
        await node.registry.register("orders", SchemaRequest(schema=build_record("a", doc=doc)))
        messages = await node.registry.check_compatibility("orders", build_request("b"))
        assert messages[2].startswith("{oldSchema: <truncated> '{")
        assert len(messages[2]) < 11_000

    run_with_registry(scenario)


def test_level_is_inherited_from_context_and_registry() -> None:
    async def scenario(node: RegistryNode) -> None:
        for subject in ("orders", ":.lab:orders"):
            await node.register(subject, "a")
        incompatible = build_request("b")
        assert await node.registry.check_compatibility("orders", incompatible)
        await node.set_level("NONE")
        assert not await node.registry.check_compatibility("orders", incompatible)
        assert await node.registry.check_compatibility(":.lab:orders", incompatible)
        await node.set_level("NONE", ":.__GLOBAL:")
        assert not await node.registry.check_compatibility(":.lab:orders", incompatible)
        await node.set_level("FULL", ":.lab:")
        assert await node.registry.check_compatibility(":.lab:orders", incompatible)
        await node.set_level("NONE", ":.lab:orders")
        assert not await node.registry.check_compatibility(":.lab:orders", incompatible)

    run_with_registry(scenario)


def test_versions_of_another_group_are_not_compared() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.registry.update_config("orders", RegistryConfigChange(compatibility_group="major"))
        await node.register("orders", "a", metadata=build_metadata(major="1"))
        await node.register("orders", "b", metadata=build_metadata(major="2"))
        again = build_request("a", "c=0", metadata=build_metadata(major="1"))
        assert not await node.registry.check_compatibility("orders", again)
        other = build_request("c", metadata=build_metadata(major="2"))
        assert isinstance(await catch_error(node.registry.register("orders", other)), IncompatibleSchemaError)

    run_with_registry(scenario)


def test_reserved_fields_are_validated() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.registry.update_config("orders", RegistryConfigChange(validate_fields=True))
        reserved = build_metadata(**{"confluent:reserved": "x, y"})
        await node.register("orders", "a", metadata=reserved)
        conflicting = await node.registry.check_compatibility("orders", build_request("a", "x=0", metadata=reserved))
        assert conflicting == [
            "The new schema has field that conflicts with the reserved field x.",
            "{validateFields: 'true', compatibility: 'BACKWARD'}",
        ]
        removed = await node.registry.check_compatibility("orders", build_request("a"))
        assert len(removed) == 3
        assert removed[0] == (
            "The new schema has reserved field x removed from its metadata which is present in the old schema's "
            "metadata."
        )

    run_with_registry(scenario)


def test_schema_of_another_type_is_incompatible() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "a")
        messages = await node.registry.check_compatibility(
            "orders", SchemaRequest(schema='{"type":"object"}', schema_type="JSON")
        )
        assert messages[0] == "Incompatible because of different schema type"

    run_with_registry(scenario)


def test_many_versions_are_compared_in_chunks() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.set_level("NONE", "orders")
        await node.register("orders", "a")
        for number in range(120):
            await node.register("orders", "b", f"c{number}=0")
        await node.set_level("BACKWARD_TRANSITIVE", "orders")
        messages = await node.registry.check_compatibility("orders", build_request("b"))
        assert "{oldSchemaVersion: 1}" in messages

    run_with_registry(scenario)


def test_loading_versions_yields_to_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "SLICE_SECONDS", -1.0)  # each version exceeds the slice

    async def scenario(node: RegistryNode) -> None:
        await node.set_level("NONE", "orders")
        for number in range(20):
            await node.register("orders", f"f{number}=0")
        await node.set_level("FULL_TRANSITIVE", "orders")
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            turns += 1

        monkeypatch.setattr(listing, "yield_loop", count_turns)
        assert await node.registry.check_compatibility("orders", build_request("other=0")) == []
        assert turns >= 20

    run_with_registry(scenario)


def test_check_starts_again_if_the_subject_changes_while_its_versions_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "SLICE_SECONDS", -1.0)

    async def scenario(node: RegistryNode) -> None:
        await node.set_level("NONE", "orders")
        for number in range(3):
            await node.register("orders", f"f{number}=0")
        await node.set_level("FULL_TRANSITIVE", "orders")
        is_changed = False

        async def change_subject() -> None:
            nonlocal is_changed
            if not is_changed:
                is_changed = True
                await node.delete_permanently("orders", 1)
                await node.set_level("NONE", "orders")

        monkeypatch.setattr(listing, "yield_loop", change_subject)
        assert await node.registry.check_compatibility("orders", build_request("f0")) == []

    run_with_registry(scenario)
