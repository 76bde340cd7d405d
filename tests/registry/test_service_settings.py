"""Configs, modes and aliases of subjects, contexts and the registry."""

from __future__ import annotations

import pytest

from chronik.registry.entities import Config, RegistryConfigChange, Rule, RuleSet
from chronik.registry.errors import (
    InvalidCompatibilityLevelError,
    InvalidModeError,
    InvalidRuleSetError,
    OperationNotPermittedError,
    ReferenceExistsError,
    SubjectConfigNotFoundError,
    SubjectModeNotFoundError,
    SubjectNotFoundError,
)
from tests.registry.registry_node import (
    RegistryNode,
    build_metadata,
    build_referring_request,
    build_request,
    build_rule_set,
    catch_error,
    run_with_registry,
)

GLOBAL = ":.__GLOBAL:"


# --- configs ---


def test_registry_and_global_context_have_default_config() -> None:
    async def scenario(node: RegistryNode) -> None:
        default = Config(compatibility_level="BACKWARD")
        for name in (None, "", ":.:", GLOBAL):
            assert await node.registry.get_config(name) == default
        assert isinstance(await catch_error(node.registry.get_config("orders")), SubjectConfigNotFoundError)
        assert await node.registry.get_config("orders", default_to_global=True) == default

    run_with_registry(scenario)


def test_config_change_keeps_absent_fields_and_null_removes() -> None:
    async def scenario(node: RegistryNode) -> None:
        update = node.registry.update_config
        assert await update("orders", RegistryConfigChange(compatibility_level="full", normalize=True)) == Config(
            compatibility_level="FULL", normalize=True
        )
        await update("orders", RegistryConfigChange(compatibility_policy="strict"))
        await update("orders", RegistryConfigChange(compatibility_policy=None))
        assert await update("orders", RegistryConfigChange(normalize=None, alias="other")) == Config(
            compatibility_level="FULL", alias="other"
        )
        change = RegistryConfigChange(default_metadata=build_metadata(a="1"), override_rule_set=build_rule_set("x"))
        await update("orders", change)
        assert await node.registry.get_config("orders") == Config(
            compatibility_level="FULL",
            alias="other",
            default_metadata=build_metadata(a="1"),
            override_rule_set=build_rule_set("x"),
        )
        deleted = await node.registry.delete_config("orders")
        assert deleted.alias == "other"
        assert isinstance(await catch_error(node.registry.delete_config("orders")), SubjectNotFoundError)

    run_with_registry(scenario)


def test_subject_config_inherits_some_fields() -> None:
    async def scenario(node: RegistryNode) -> None:
        everything = RegistryConfigChange(
            compatibility_level="FULL", normalize=True, validate_fields=True, compatibility_group="major",
            default_metadata=build_metadata(a="1"),
        )  # fmt: skip
        await node.registry.update_config(None, everything)
        inherited = await node.registry.get_config("orders", default_to_global=True)
        assert (inherited.compatibility_level, inherited.default_metadata) == ("FULL", build_metadata(a="1"))
        await node.registry.update_config("orders", RegistryConfigChange(normalize=False))
        assert await node.registry.get_config("orders", default_to_global=True) == Config(
            compatibility_level="BACKWARD", normalize=False, validate_fields=True, compatibility_group="major"
        )

    run_with_registry(scenario)


def test_deleted_registry_config_is_the_default_again() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.set_level("NONE")
        assert (await node.registry.delete_config()).compatibility_level == "NONE"
        assert (await node.registry.delete_config()).compatibility_level == "BACKWARD"
        assert not node.table.settings

    run_with_registry(scenario)


@pytest.mark.parametrize(
    ("change", "error_type"),
    [
        (RegistryConfigChange(compatibility_level="SIDEWAYS"), InvalidCompatibilityLevelError),
        (RegistryConfigChange(compatibility_policy="LOGICAL"), InvalidCompatibilityLevelError),
        (RegistryConfigChange(compatibility_policy="LENIENT"), InvalidCompatibilityLevelError),
        (RegistryConfigChange(default_rule_set=build_rule_set("a", "a")), InvalidRuleSetError),
        (RegistryConfigChange(override_rule_set=RuleSet(migration_rules=[Rule("a", type="CEL")])), InvalidRuleSetError),
    ],
    ids=["level", "logical policy", "lenient policy", "duplicate rule", "migration mode"],
)
def test_invalid_config_is_rejected(change: RegistryConfigChange, error_type: type[Exception]) -> None:
    async def scenario(node: RegistryNode) -> None:
        assert isinstance(await catch_error(node.registry.update_config("orders", change)), error_type)
        assert not node.table.settings

    run_with_registry(scenario)


# --- aliases ---


def test_reads_follow_an_alias_and_writes_do_not() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        await node.registry.update_config("bestellungen", RegistryConfigChange(alias="orders"))
        assert await node.registry.resolve_alias("bestellungen") == "orders"
        assert (await node.registry.get_version("bestellungen", 1)).subject == "orders"
        assert (await node.registry.look_up("bestellungen", build_request("id"))).subject == "orders"
        assert (await node.registry.get_by_id(1, "bestellungen")).subject == "orders"
        assert await node.registry.list_versions("bestellungen") == [1]
        assert await node.register("bestellungen", "x") == (2, 1)
        assert (await node.registry.get_version("bestellungen", "latest")).id == 1

    run_with_registry(scenario)


def test_alias_is_resolved_once_and_in_the_same_context() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.registry.update_config(":.lab:a", RegistryConfigChange(alias="b"))
        await node.registry.update_config(":.lab:b", RegistryConfigChange(alias="c"))
        resolved = await node.registry.resolve_alias(":.lab:a")
        assert resolved == ":.lab:b"
        await node.register(":.lab:b", "id")
        await node.register(":.lab:c", "x")
        assert (await node.registry.get_version(resolved, 1)).subject == ":.lab:b"
        assert await node.registry.resolve_alias(":.:x") == "x"

    run_with_registry(scenario)


# --- modes ---


def test_mode_is_inherited_from_context_and_registry() -> None:
    async def scenario(node: RegistryNode) -> None:
        get_mode = node.registry.get_mode
        assert [await get_mode(), await get_mode(GLOBAL)] == ["READWRITE", "READWRITE"]
        assert isinstance(await catch_error(get_mode("orders")), SubjectModeNotFoundError)
        await node.registry.set_mode(GLOBAL, "readonly")
        assert await get_mode("orders", default_to_global=True) == "READONLY"
        await node.registry.set_mode(None, "READWRITE")
        assert await get_mode("orders", default_to_global=True) == "READWRITE"
        assert await get_mode(":.lab:orders", default_to_global=True) == "READONLY"
        await node.registry.set_mode(":.lab:", "READWRITE")
        assert await get_mode(":.lab:orders", default_to_global=True) == "READWRITE"

    run_with_registry(scenario)


def test_read_only_override_applies_to_all_subjects() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.registry.set_mode("orders", "READWRITE")
        await node.registry.set_mode(None, "READONLY_OVERRIDE")
        assert await node.registry.get_mode("orders", default_to_global=True) == "READONLY_OVERRIDE"
        error = await catch_error(node.registry.register("orders", build_request("id")))
        assert isinstance(error, OperationNotPermittedError)

    run_with_registry(scenario)


@pytest.mark.parametrize("mode", ["FORWARD", "", "WRITE"])
def test_unknown_mode_is_rejected(mode: str) -> None:
    async def scenario(node: RegistryNode) -> None:
        assert isinstance(await catch_error(node.registry.set_mode("orders", mode)), InvalidModeError)

    run_with_registry(scenario)


@pytest.mark.parametrize("name", [None, "orders", GLOBAL])
def test_import_requires_that_no_schemas_exist(name: str | None) -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        error = await catch_error(node.registry.set_mode(name, "IMPORT"))
        assert isinstance(error, OperationNotPermittedError)
        assert error.message == "Cannot import since found existing subjects"
        assert await node.registry.set_mode(":.lab:", "IMPORT") == "IMPORT"
        assert await node.registry.set_mode(name, "IMPORT", force=True) == "IMPORT"
        assert await node.register("orders", "x", id=9, version=4) == (9, 4)

    run_with_registry(scenario)


def test_import_removes_soft_deleted_schemas() -> None:
    async def scenario(node: RegistryNode) -> None:
        for subject in ("orders", "lines", ":.lab:orders"):
            await node.register(subject, "id")
            await node.registry.delete_subject(subject)
        await node.registry.set_mode(None, "IMPORT")
        assert not node.table.subjects
        assert await node.registry.get_mode() == "IMPORT"

    run_with_registry(scenario)


def test_import_does_not_remove_referenced_schemas() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        await node.registry.register("lines", build_referring_request("orders"))
        for subject in ("lines", "orders"):
            await node.registry.delete_subject(subject)
        assert isinstance(await catch_error(node.registry.set_mode("orders", "IMPORT")), ReferenceExistsError)
        assert sorted(node.table.subjects) == ["lines", "orders"]

    run_with_registry(scenario)


def test_deleted_mode_is_returned() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.registry.set_mode("orders", "READONLY")
        assert await node.registry.delete_mode("orders") == "READONLY"
        assert isinstance(await catch_error(node.registry.delete_mode("orders")), SubjectNotFoundError)
        assert await node.registry.delete_mode() == "READWRITE"

    run_with_registry(scenario)


def test_recursive_deletion_removes_modes_of_the_context() -> None:
    async def scenario(node: RegistryNode) -> None:
        for name in ("a", ":.lab:a", ":.lab:b", ":.labs:a"):
            await node.registry.set_mode(name, "READONLY")
        assert await node.registry.delete_mode(":.lab:", recursive=True) is None
        assert sorted(node.table.settings) == [":.labs:a", "a"]
        assert await node.registry.delete_mode(recursive=True) == "READWRITE"
        assert sorted(node.table.settings) == [":.labs:a"]

    run_with_registry(scenario)


def test_mode_and_config_of_a_subject_are_independent() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.set_level("FULL", "orders")
        await node.registry.set_mode("orders", "READWRITE")
        await node.registry.delete_mode("orders")
        assert (await node.registry.get_config("orders")).compatibility_level == "FULL"

    run_with_registry(scenario)
