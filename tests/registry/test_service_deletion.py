"""Soft and permanent deletion of versions, subjects and contexts."""

from __future__ import annotations

import pytest

from chronik.registry.entities import RegistryConfigChange
from chronik.registry.errors import (
    ContextNotEmptyError,
    InvalidSubjectError,
    ReferenceExistsError,
    SchemaNotFoundError,
    SubjectNotFoundError,
    SubjectNotSoftDeletedError,
    SubjectSoftDeletedError,
    VersionNotFoundError,
    VersionNotSoftDeletedError,
    VersionSoftDeletedError,
)
from tests.registry.registry_node import (
    RegistryNode,
    build_referring_request,
    build_request,
    catch_error,
    run_with_registry,
)


def test_soft_deleted_version_is_hidden_but_its_id_is_not() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        await node.register("orders", "id", "x=0")
        assert await node.registry.delete_version("orders", "latest") == 2
        assert await node.registry.list_versions("orders") == [1]
        assert (await node.registry.get_version("orders", "latest")).version == 1
        assert isinstance(await catch_error(node.registry.get_version("orders", 2)), VersionNotFoundError)
        assert (await node.registry.get_version("orders", 2, deleted=True)).deleted
        assert (await node.registry.get_by_id(2)).deleted
        assert await node.registry.list_subjects_of_id(2) == []
        assert await node.registry.list_subjects_of_id(2, deleted=True) == ["orders"]

    run_with_registry(scenario)


def test_soft_deleted_subject_is_listed_on_request() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        await node.register("orders", "id", "x=0")
        await node.register("lines", "id")
        assert await node.registry.delete_subject("orders") == [1, 2]
        assert await node.registry.list_subjects() == ["lines"]
        assert await node.registry.list_subjects(deleted=True) == ["lines", "orders"]
        assert await node.registry.list_subjects(deleted_only=True) == ["orders"]
        assert await node.registry.list_versions("orders", deleted_only=True) == [1, 2]
        assert isinstance(await catch_error(node.registry.list_versions("orders")), SubjectNotFoundError)
        assert isinstance(await catch_error(node.registry.get_version("orders", 1)), SubjectNotFoundError)

    run_with_registry(scenario)


def test_permanent_deletion_removes_schema_and_settings() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        await node.register("lines", "id")
        await node.register("orders", "id", "x=0")
        await node.registry.update_config("orders", RegistryConfigChange(normalize=True))
        await node.registry.set_mode("orders", "READWRITE")
        await node.delete_permanently("orders")
        assert (await node.registry.get_by_id(1)).schema
        assert isinstance(await catch_error(node.registry.get_by_id(2)), SchemaNotFoundError)
        assert not node.table.settings
        assert await node.registry.list_subjects(deleted=True) == ["lines"]

    run_with_registry(scenario)


def test_numbers_of_last_versions_are_used_again_after_permanent_deletion() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        await node.register("orders", "id", "x=0")
        await node.delete_permanently("orders", 2)
        await node.registry.delete_version("orders", "latest")
        assert await node.registry.list_versions("orders", deleted=True) == [1]
        assert await node.register("orders", "id") == (1, 2)
        assert await node.registry.list_versions("orders", deleted=True) == [2]

    run_with_registry(scenario)


def test_deletion_order_is_enforced() -> None:
    async def scenario(node: RegistryNode) -> None:
        delete_version, delete_subject = node.registry.delete_version, node.registry.delete_subject
        await node.register("orders", "id")
        assert isinstance(await catch_error(delete_version("orders", 1, permanent=True)), VersionNotSoftDeletedError)
        assert isinstance(await catch_error(delete_subject("orders", permanent=True)), SubjectNotSoftDeletedError)
        await delete_version("orders", 1)
        assert isinstance(await catch_error(delete_version("orders", 1)), VersionSoftDeletedError)
        assert isinstance(await catch_error(delete_subject("orders")), SubjectSoftDeletedError)
        assert await delete_version("orders", 1, permanent=True) == 1
        assert isinstance(await catch_error(delete_subject("orders")), SubjectNotFoundError)
        assert isinstance(await catch_error(delete_version("orders", 1)), SubjectNotFoundError)

    run_with_registry(scenario)


def test_referenced_version_cannot_be_deleted() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        await node.registry.register("lines", build_referring_request("orders"))
        error = await catch_error(node.registry.delete_version("orders", 1))
        assert isinstance(error, ReferenceExistsError)
        assert error.message == (
            "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=orders,version=1}."
        )
        assert isinstance(await catch_error(node.registry.delete_subject("orders")), ReferenceExistsError)
        await node.registry.delete_subject("lines")
        await node.registry.delete_subject("orders")
        for deletion in (
            node.registry.delete_subject("orders", permanent=True),
            node.registry.delete_version("orders", 1, permanent=True),
        ):
            assert isinstance(await catch_error(deletion), ReferenceExistsError)
        assert await node.registry.list_referencing_ids("orders", 1) == []
        assert await node.registry.list_referencing_ids("orders", 1, deleted=True) == [2]
        await node.registry.delete_subject("lines", permanent=True)
        await node.registry.delete_subject("orders", permanent=True)
        assert not node.table.schemas

    run_with_registry(scenario)


def test_subject_that_refers_to_itself_is_deleted_as_a_whole() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.set_level("NONE")
        await node.register("orders", "id")
        await node.registry.register("orders", build_referring_request("orders"))
        assert isinstance(await catch_error(node.registry.delete_version("orders", 1)), ReferenceExistsError)
        assert await node.registry.delete_subject("orders") == [1, 2]
        assert await node.registry.delete_subject("orders", permanent=True) == [1, 2]

    run_with_registry(scenario)


def test_soft_deleted_referrer_in_another_subject_does_not_prevent_soft_deletion() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.set_level("NONE")
        await node.register("orders", "id")
        await node.registry.register("orders", build_referring_request("orders"))
        await node.registry.register("lines", build_referring_request("orders"))
        await node.registry.delete_subject("lines")
        assert await node.registry.delete_subject("orders") == [1, 2]

    run_with_registry(scenario)


def test_context_is_deleted_when_it_is_empty() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register(":.lab:orders", "id")
        await node.registry.set_mode(":.lab:", "READWRITE")
        error = await catch_error(node.registry.delete_context(".lab"))
        assert isinstance(error, ContextNotEmptyError)
        assert error.message == "The specified context ':.lab:' is not empty."
        await node.delete_permanently(":.lab:orders")
        assert await node.registry.list_contexts() == [".", ".lab"]
        await node.registry.delete_context(":.lab:")
        assert await node.registry.list_contexts() == ["."]
        assert not node.table.settings
        await node.registry.delete_context(".lab")
        assert await node.register(":.lab:orders", "x") == (2, 1)

    run_with_registry(scenario)


@pytest.mark.parametrize("name", [".a:b", ".__GLOBAL", "." + "x" * 1024])
def test_deletion_of_invalid_context_is_rejected(name: str) -> None:
    async def scenario(node: RegistryNode) -> None:
        assert isinstance(await catch_error(node.registry.delete_context(name)), InvalidSubjectError)

    run_with_registry(scenario)


def test_deletion_of_unknown_context_changes_nothing() -> None:
    async def scenario(node: RegistryNode) -> None:
        before = node.store.image.state_hash
        await node.registry.delete_context(".missing")
        await node.registry.delete_context(".")
        assert node.store.image.state_hash == before
        assert isinstance(await catch_error(node.registry.look_up("x", build_request("id"))), SubjectNotFoundError)

    run_with_registry(scenario)
