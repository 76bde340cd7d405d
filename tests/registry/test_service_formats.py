"""Registration, lookup, references and compatibility of schemas in all formats."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from chronik.registry.entities import RegistryConfigChange, SchemaReference, SchemaRequest
from chronik.registry.errors import IncompatibleSchemaError, UnprocessableSchemaError
from tests.registry.registry_node import RegistryNode, build_metadata, build_record, catch_error, run_with_registry


class FormatExample(NamedTuple):
    first: str
    compatible: str
    incompatible: str
    invalid: str
    referring: str
    reference_name: str


EXAMPLES = {
    "AVRO": FormatExample(
        build_record("id"),
        build_record("id", "x=0"),
        build_record("id", "y"),
        '{"type":"wish"}',
        '{"type":"record","name":"Line","fields":[{"name":"order","type":"Order"}]}',
        "Order",
    ),
    "JSON": FormatExample(
        '{"type":"object","properties":{"id":{"type":"integer"}}}',
        '{"type":"object","properties":{"id":{"type":"number"}}}',
        '{"type":"object","properties":{"id":{"type":"string"}}}',
        '{"type":"wish"}',
        '{"type":"object","properties":{"order":{"$ref":"order.json"}}}',
        "order.json",
    ),
    "PROTOBUF": FormatExample(
        'syntax = "proto3";\n\nmessage Order {\n  int32 id = 1;\n}\n',
        'syntax = "proto3";\n\nmessage Order {\n  int32 id = 1;\n  string x = 2;\n}\n',
        'syntax = "proto3";\n\nmessage Order {\n  string id = 1;\n}\n',
        "message {",
        'syntax = "proto3";\n\nimport "order.proto";\n\nmessage Line {\n  Order order = 1;\n}\n',
        "order.proto",
    ),
}


@pytest.mark.parametrize("schema_type", EXAMPLES)
def test_format_is_registered_looked_up_and_compared(schema_type: str) -> None:
    example = EXAMPLES[schema_type]

    def build(text: str) -> SchemaRequest:
        return SchemaRequest(schema=text, schema_type=schema_type)

    async def scenario(node: RegistryNode) -> None:
        registry = node.registry
        first = await registry.register("orders", build(example.first))
        assert (first.schema, first.schema_type) == (example.first, schema_type)
        assert await registry.register("orders", build(example.first)) == first
        assert (await registry.register("orders", build(example.compatible))).version == 2
        assert (await registry.look_up("orders", build(example.compatible))).version == 2
        error = await catch_error(registry.register("orders", build(example.incompatible)))
        assert isinstance(error, IncompatibleSchemaError)
        for part in ("new", "old", "{oldSchemaVersion: 2}", "{validateFields: 'false', compatibility: 'BACKWARD'}"):
            assert part in error.message
        assert "%s" not in error.message
        error = await catch_error(registry.register("orders", build(example.invalid)))
        assert isinstance(error, UnprocessableSchemaError)
        assert error.message.startswith(f"Invalid schema of type {schema_type}, details: ")
        other = next(name for name in EXAMPLES if name != schema_type)
        mixed = SchemaRequest(schema=EXAMPLES[other].first, schema_type=other)
        assert "different schema type" in (await registry.check_compatibility("orders", mixed))[0]

    run_with_registry(scenario)


@pytest.mark.parametrize("schema_type", EXAMPLES)
def test_format_is_registered_with_references(schema_type: str) -> None:
    example = EXAMPLES[schema_type]

    async def scenario(node: RegistryNode) -> None:
        registry = node.registry
        await registry.register("orders", SchemaRequest(schema=example.first, schema_type=schema_type))
        reference = SchemaReference(example.reference_name, "orders", 1)
        request = SchemaRequest(schema=example.referring, schema_type=schema_type, references=[reference])
        found = await registry.register("lines", request)
        assert (found.id, found.references) == (2, [reference])
        assert await registry.look_up("lines", request) == found
        assert await registry.list_referencing_ids("orders", 1) == [2]
        error = await catch_error(
            registry.register("lines", SchemaRequest(schema=example.referring, schema_type=schema_type))
        )
        assert isinstance(error, UnprocessableSchemaError)

    run_with_registry(scenario)


@pytest.mark.parametrize("schema_type", EXAMPLES)
def test_reserved_fields_of_format_are_validated(schema_type: str) -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.registry.update_config("orders", RegistryConfigChange(validate_fields=True))
        request = SchemaRequest(
            schema=EXAMPLES[schema_type].first,
            schema_type=schema_type,
            metadata=build_metadata(**{"confluent:reserved": "id"}),
        )
        messages = await node.registry.check_compatibility("orders", request)
        assert messages[0] == "The new schema has field that conflicts with the reserved field id."

    run_with_registry(scenario)


def test_json_properties_with_restricted_prefix_are_rejected() -> None:
    async def scenario(node: RegistryNode) -> None:
        request = SchemaRequest(schema='{"type":"object","properties":{"$$x":{}}}', schema_type="JSON")
        await node.registry.register("orders", request)
        await node.registry.update_config(None, RegistryConfigChange(validate_fields=True))
        error = await catch_error(node.registry.register("lines", request))
        assert error.error_code == 42201
        assert "Field names cannot start with $$ prefix" in error.message

    run_with_registry(scenario)
