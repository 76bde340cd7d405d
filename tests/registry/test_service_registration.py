"""Registration and lookup of schemas: ids, versions, modes, references, metadata and rule sets."""

from __future__ import annotations

import pytest

from chronik.registry.entities import Metadata, RegistryConfigChange, SchemaReference, SchemaRequest
from chronik.registry.errors import (
    OperationNotPermittedError,
    SchemaNotFoundError,
    SubjectNotFoundError,
    UnprocessableSchemaError,
)
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


def test_registration_of_same_schema_returns_first_version() -> None:
    async def scenario(node: RegistryNode) -> None:
        first = await node.registry.register("orders", build_request("id"))
        node.clock.advance(5)
        again = await node.registry.register("orders", build_request("id"))
        assert (first.id, first.version, first.ts) == (1, 1, 1_700_000_000_000)
        assert again == first

    run_with_registry(scenario)


def test_registration_stores_canonical_text() -> None:
    async def scenario(node: RegistryNode) -> None:
        text = '{ "name": "Order", "type": "record", "namespace": "shop", "fields": [] }'
        found = await node.registry.register("orders", SchemaRequest(schema=text))
        assert found.schema == '{"type":"record","name":"Order","namespace":"shop","fields":[]}'

    run_with_registry(scenario)


def test_subjects_of_a_context_share_the_id_of_a_schema() -> None:
    async def scenario(node: RegistryNode) -> None:
        assert await node.register("a", "id") == (1, 1)
        assert await node.register("b", "x") == (2, 1)
        assert await node.register("b", "x", "id=0") == (3, 2)
        assert await node.register("c", "id") == (1, 1)
        assert await node.register(":.lab:a", "x") == (1, 1)
        assert await node.register(":.:d", "x") == (2, 1)
        assert sorted(node.table.subjects) == [":.lab:a", "a", "b", "c", "d"]

    run_with_registry(scenario)


def test_incompatible_schema_is_rejected_with_messages() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        error = await catch_error(node.registry.register("orders", build_request("id", "sum")))
        assert (error.error_code, error.status) == (409, 409)
        assert error.message == (
            'Schema being registered is incompatible with an earlier schema for subject "orders", details: '
            "[{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'sum' at path '/fields/1' in the "
            "new schema has no default value and is missing in the old schema', additionalInfo:'sum'}, "
            "{oldSchemaVersion: 1}, "
            """{oldSchema: '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}'}, """
            "{validateFields: 'false', compatibility: 'BACKWARD'}]"
        )
        assert len(node.table.schemas) == 1

    run_with_registry(scenario)


def test_registration_of_soft_deleted_schema_creates_version_with_same_id() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        await node.registry.delete_version("orders", 1)
        assert await node.register("orders", "id") == (1, 2)
        assert await node.registry.list_versions("orders", deleted=True) == [2]

    run_with_registry(scenario)


def test_ids_are_not_reused_after_permanent_deletion() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        await node.delete_permanently("orders")
        assert await node.register("orders", "x") == (2, 1)
        assert await node.register("orders", "x", "id=0") == (3, 2)

    run_with_registry(scenario)


def test_normalization_finds_equivalent_schema() -> None:
    text = '{"type":"record","name":"Order","fields":[{"type":"int","name":"id","order":"ascending"}]}'
    other = '{"type":"record","name":"Order","fields":[{"name":"id","type":{"type":"int"},"doc":"x"}]}'

    async def scenario(node: RegistryNode) -> None:
        first = await node.registry.register("orders", SchemaRequest(schema=text), normalize=True)
        assert (await node.registry.register("orders", SchemaRequest(schema=other))).id == 2
        assert (await node.registry.register("orders", SchemaRequest(schema=text), normalize=True)).id == first.id
        await node.registry.update_config("orders", RegistryConfigChange(normalize=True))
        assert (await node.registry.register("orders", SchemaRequest(schema=text))).id == first.id
        assert (await node.registry.look_up("orders", SchemaRequest(schema=text))).id == first.id

    run_with_registry(scenario)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (SchemaRequest(schema=""), "Empty schema"),
        (SchemaRequest(schema="{}", schema_type="XML"), "Invalid schema type XML"),
        (SchemaRequest(schema='"none"'), "Invalid schema of type AVRO, details: "),
        (
            build_referring_request("missing"),
            'Invalid schema of type AVRO, details: No schema reference found for subject "missing" and version 1',
        ),
        (build_request("id", version=7), "Version is not one more than previous version"),
    ],
    ids=["empty", "type", "syntax", "reference", "version"],
)
def test_invalid_schema_is_rejected(request_: SchemaRequest, message: str) -> None:
    async def scenario(node: RegistryNode) -> None:
        error = await catch_error(node.registry.register("orders", request_))
        assert isinstance(error, UnprocessableSchemaError)
        assert error.message.startswith(message)

    run_with_registry(scenario)


def test_look_up_distinguishes_missing_subject_and_missing_schema() -> None:
    async def scenario(node: RegistryNode) -> None:
        look_up = node.registry.look_up
        assert isinstance(await catch_error(look_up("orders", build_request("id"))), SubjectNotFoundError)
        await node.register("orders", "id")
        assert isinstance(await catch_error(look_up("orders", build_request("x"))), SchemaNotFoundError)
        assert (await look_up("orders", build_request("id"))).version == 1
        await node.registry.delete_version("orders", 1)
        assert isinstance(await catch_error(look_up("orders", build_request("id"))), SubjectNotFoundError)
        found = await look_up("orders", build_request("id"), deleted=True)
        assert (found.version, found.deleted) == (1, True)

    run_with_registry(scenario)


# --- references ---


def test_schema_with_reference_is_registered_and_resolved() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        found = await node.registry.register("lines", build_referring_request("orders"))
        assert found.references == [SchemaReference("Order", "orders", 1)]
        resolved = await node.registry.get_version("lines", 1, format="resolved")
        assert '"fields":[{"name":"id","type":"int"}]' in resolved.schema
        assert await node.registry.list_referencing_ids("orders", 1) == [2]

    run_with_registry(scenario)


def test_reference_to_latest_version_is_stored_with_its_number() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        await node.register("orders", "id", "x=0")
        found = await node.registry.register("lines", build_referring_request("orders", -1))
        assert found.references == [SchemaReference("Order", "orders", 2)]
        again = await node.registry.register("lines", build_referring_request("orders", 2))
        assert again == found

    run_with_registry(scenario)


def test_reference_in_a_context_means_the_same_context() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register(":.lab:orders", "id")
        found = await node.registry.register(":.lab:lines", build_referring_request("orders"))
        assert found.references == [SchemaReference("Order", "orders", 1)]
        qualified = await node.registry.get_version(":.lab:lines", 1, reference_format="qualified")
        assert qualified.references == [SchemaReference("Order", ":.lab:orders", 1)]
        error = await catch_error(node.registry.register("lines", build_referring_request("orders")))
        assert isinstance(error, UnprocessableSchemaError)
        await node.registry.register("lines", build_referring_request(":.lab:orders"))

    run_with_registry(scenario)


def test_schema_with_resolved_references_is_found() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        found = await node.registry.register("lines", build_referring_request("orders"))
        resolved = await node.registry.format_schema(found, "resolved")
        assert resolved.schema != found.schema
        looked_up = await node.registry.look_up("lines", SchemaRequest(schema=resolved.schema))
        assert looked_up.version == 1
        assert looked_up.schema == found.schema

    run_with_registry(scenario)


def test_new_schema_cannot_refer_to_soft_deleted_version() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        await node.registry.delete_version("orders", 1)
        error = await catch_error(node.registry.register("lines", build_referring_request("orders")))
        assert isinstance(error, UnprocessableSchemaError)

    run_with_registry(scenario)


# --- metadata and rule sets ---


def test_metadata_and_rules_are_stored_in_canonical_order() -> None:
    async def scenario(node: RegistryNode) -> None:
        metadata = Metadata(tags={"b": ["y", "x", "y"], "a": []}, properties={"q": "2", "p": "1"}, sensitive=["s", "r"])
        found = await node.registry.register(
            "orders", build_request("id", metadata=metadata, rule_set=build_rule_set("check"))
        )
        assert found.metadata == Metadata(
            tags={"a": [], "b": ["x", "y"]}, properties={"p": "1", "q": "2"}, sensitive=["r", "s"]
        )
        assert list(found.metadata.properties or ()) == ["p", "q"]
        assert found.rule_set == build_rule_set("check")
        assert await node.registry.get_version("orders", 1) == found
        assert (await node.register("other", "id"))[0] == 2

    run_with_registry(scenario)


def test_registration_without_metadata_takes_that_of_the_latest_version() -> None:
    async def scenario(node: RegistryNode) -> None:
        metadata = build_metadata(owner="team")
        first = await node.registry.register("orders", build_request("id", metadata=metadata))
        assert await node.registry.register("orders", build_request("id")) == first
        assert (await node.registry.look_up("orders", build_request("id"))).version == 1
        second = await node.registry.register("orders", build_request("id", "x=0"))
        assert second.metadata == metadata

    run_with_registry(scenario)


def test_registration_without_schema_takes_that_of_the_latest_version() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        found = await node.registry.register("orders", SchemaRequest(metadata=build_metadata(owner="team")))
        assert (found.version, found.schema) == (2, build_record("id"))

    run_with_registry(scenario)


def test_config_adds_default_and_override_metadata_and_rules() -> None:
    async def scenario(node: RegistryNode) -> None:
        change = RegistryConfigChange(
            default_metadata=build_metadata(owner="nobody", tier="1"),
            override_metadata=build_metadata(region="eu"),
            default_rule_set=build_rule_set("first"),
            override_rule_set=build_rule_set("second"),
        )
        await node.registry.update_config("orders", change)
        given = build_metadata(owner="team", region="us")
        found = await node.registry.register("orders", build_request("id", metadata=given))
        assert found.metadata == build_metadata(owner="team", region="eu", tier="1")
        assert found.rule_set == build_rule_set("first", "second")
        assert await node.registry.register("orders", build_request("id")) == found

    run_with_registry(scenario)


def test_version_in_request_adds_version_to_metadata() -> None:
    async def scenario(node: RegistryNode) -> None:
        first = await node.registry.register("orders", build_request("id", version=-1))
        assert first.metadata == build_metadata(**{"confluent:version": "1"})
        assert await node.registry.register("orders", build_request("id", version=-1)) == first
        assert await node.registry.register("orders", build_request("id")) == first
        assert (await node.registry.look_up("orders", build_request("id"))).version == 1
        second = await node.registry.register("orders", build_request("id", "x=0"))
        assert second.metadata == build_metadata(**{"confluent:version": "2"})

    run_with_registry(scenario)


def test_version_in_metadata_is_maintained_as_in_confluents_registry() -> None:
    """The steps and results are those of Confluent's own test of `confluent:version`."""

    async def scenario(node: RegistryNode) -> None:
        def build(version: int | None = None, metadata: Metadata | None = None) -> SchemaRequest:
            return build_request("f1=0", version=version, metadata=metadata)

        def number(value: str) -> Metadata:
            return build_metadata(**{"confluent:version": value})

        async def register(version: int | None = None, metadata: Metadata | None = None) -> tuple[int, int, str | None]:
            found = await node.registry.register("test", build(version, metadata))
            stored = (found.metadata or Metadata()).properties or {}
            return found.id, found.version, stored.get("confluent:version")

        async def look_up(metadata: Metadata | None = None) -> int:
            return (await node.registry.look_up("test", build(metadata=metadata))).version

        mine = build_metadata(mykey="myvalue")

        assert await register() == (1, 1, None)
        assert await register(-1) == (1, 1, None)
        assert await register(2) == (2, 2, "2")
        assert await register(-1) == (2, 2, "2")
        assert await look_up() == 1
        assert await look_up(number("1")) == 1
        assert await look_up(number("2")) == 2
        await node.registry.delete_version("test", 1)
        assert await look_up() == 2
        assert await register() == (2, 2, "2")
        assert await register(3) == (3, 3, "3")
        assert await register(-1) == (3, 3, "3")
        assert (await catch_error(node.registry.register("test", build(3)))).error_code == 42201
        assert await register(4) == (4, 4, "4")
        assert await look_up() == 4
        assert await register(metadata=number("-1")) == (5, 5, "5")
        assert await register(metadata=number("2")) == (2, 2, "2")
        assert await register(metadata=number("3")) == (3, 3, "3")
        assert await register(metadata=number("0")) == (6, 6, "6")
        empty = build_request("f1=0", metadata=Metadata())
        assert (await node.registry.register("test", empty)).id == 6
        assert await register(metadata=mine) == (7, 7, None)
        assert await register(-1) == (8, 8, "8")
        assert await look_up(mine) == 7
        await node.registry.delete_version("test", 7)
        assert await look_up(mine) == 8
        other = build_request("f1=0", "f2=0", version=-1)
        assert isinstance(await catch_error(node.registry.look_up("test", other)), SchemaNotFoundError)

    run_with_registry(scenario)


# --- modes ---


@pytest.mark.parametrize("mode", ["READONLY", "READONLY_OVERRIDE"])
def test_read_only_subject_accepts_only_known_schemas(mode: str) -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        await node.registry.set_mode("orders", mode)
        assert await node.register("orders", "id") == (1, 1)
        error = await catch_error(node.registry.register("orders", build_request("x")))
        assert isinstance(error, OperationNotPermittedError)
        assert error.message == "Subject orders in context  is in read-only mode"
        for change in (node.registry.delete_version("orders", 1), node.registry.delete_subject("orders")):
            assert isinstance(await catch_error(change), OperationNotPermittedError)
        assert isinstance(
            await catch_error(node.registry.update_config("orders", RegistryConfigChange())), OperationNotPermittedError
        )

    run_with_registry(scenario)


def test_import_keeps_ids_and_versions() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.registry.set_mode(":.lab:", "IMPORT")
        assert await node.register(":.lab:a", "id", id=100, version=3) == (100, 3)
        assert await node.register(":.lab:a", "text", id=7, version=1) == (7, 1)
        assert await node.register(":.lab:b", "id", id=100) == (100, 1)
        assert await node.registry.list_versions(":.lab:a") == [1, 3]
        await node.registry.set_mode(":.lab:", "READWRITE")
        assert await node.register(":.lab:a", "id", "x=0") == (101, 4)

    run_with_registry(scenario)


def test_imported_id_is_never_given_to_another_schema() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.registry.set_mode(None, "IMPORT")
        await node.register("a", "id", id=5, version=1)
        error = await catch_error(node.registry.register("b", build_request("x", id=5)))
        assert error.message == "Overwrite new schema with id 5 in context  is not permitted."
        error = await catch_error(node.registry.register("a", build_request("x", id=6, version=1)))
        assert isinstance(error, OperationNotPermittedError)
        assert await node.register("a", "id", id=5, version=1) == (5, 1)

    run_with_registry(scenario)


def test_import_may_use_the_id_of_a_deleted_schema() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("a", "id")
        await node.registry.delete_subject("a")
        await node.registry.set_mode(None, "IMPORT")
        metadata = build_metadata(owner="team")
        for _ in range(2):
            assert await node.register("a", "id", id=1, version=1, metadata=metadata) == (1, 1)
            assert (await node.registry.get_version("a", 1)).metadata == metadata
            await node.registry.delete_subject("a")

    run_with_registry(scenario)


def test_same_schema_may_be_imported_with_several_ids() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.registry.set_mode(None, "IMPORT")
        assert await node.register("a", "id", id=100, version=1) == (100, 1)
        assert await node.register("a", "id", id=200, version=2) == (200, 2)
        assert await node.register("b", "id", id=200, version=1) == (200, 1)
        assert (await node.registry.look_up("b", build_request("id"))).id == 200
        assert [each.id for each in await node.registry.list_schemas("a")] == [100, 200]
        assert await node.register("b", "id") == (200, 1)

    run_with_registry(scenario)


def test_id_in_request_requires_import_mode() -> None:
    async def scenario(node: RegistryNode) -> None:
        error = await catch_error(node.registry.register("a", build_request("id", id=5)))
        assert error.message == "Subject a in context  is not in import mode"
        await node.registry.set_mode("a", "IMPORT")
        error = await catch_error(node.registry.register("a", build_request("id")))
        assert error.message == "Subject a in context  is not in read-write mode"
        error = await catch_error(node.registry.register(":.lab:a", build_request("id", id=5)))
        assert error.message == "Subject :.lab:a in context :.lab: is not in import mode"

    run_with_registry(scenario)


def test_known_schema_with_its_id_is_returned_in_any_mode() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("a", "id")
        assert await node.register("a", "id", id=1) == (1, 1)
        assert await node.register("a", "id", id=1, version=1) == (1, 1)
        assert isinstance(
            await catch_error(node.registry.register("a", build_request("id", id=2))), OperationNotPermittedError
        )

    run_with_registry(scenario)
