"""Validation of the schemas of produced records by subject name strategy, and the cache of record names."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from chronik.broker.requests import schema_validation
from chronik.broker.requests.produced_records import ProduceRules, SubjectNameStrategy
from chronik.broker.requests.schema_validation import RecordNameCache, RecordNamesMissingError, SchemaValidator
from chronik.metadata.schemas import StoredSchema
from chronik.protocol.errors import InvalidRecord
from chronik.protocol.schema_ids import RECORD_ERRORS_MAX, SchemaKey, SchemaUsage
from tests.metadata.registry_world import JSON, PROTOBUF, RegistryWorld

ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[]}'
JSON_ORDER = '{"title":"Order","type":"object"}'
PROTOBUF_ORDER = 'syntax = "proto3";\npackage shop;\n\nmessage Order {\n  message Line {\n  }\n}\n'
TOPIC, RECORD, TOPIC_RECORD = SubjectNameStrategy


@pytest.fixture
def world() -> RegistryWorld:
    return RegistryWorld()


def find_errors(
    world: RegistryWorld,
    *values: SchemaKey,
    strategy: SubjectNameStrategy = TOPIC,
    keys: tuple[SchemaKey, ...] = (),
    validator: SchemaValidator | None = None,
) -> dict[int, str]:
    """Validate records with these schemas in the topic `orders`."""
    rules = ProduceRules(10**6, key_schemas=strategy, value_schemas=strategy)
    usage = SchemaUsage(
        {key: index for index, key in enumerate(keys)}, {key: index for index, key in enumerate(values)}, {}
    )
    return (validator or SchemaValidator()).find_errors([usage], rules, "orders", world.table)


def test_schema_of_topic_is_valid(world: RegistryWorld) -> None:
    world.register_schema("orders-value", ORDER)
    world.register_schema("orders-key", '"string"')
    assert find_errors(world, 1, keys=(2,)) == {}


def test_unknown_schema_is_reported_with_its_part(world: RegistryWorld) -> None:
    world.register_schema("orders-value", ORDER)
    assert find_errors(world, 1, 2, keys=(3,)) == {
        0: "schema id 3 of the key is not registered",
        1: "schema id 2 of the value is not registered",
    }


@pytest.mark.parametrize("subject", ["orders-key", "payments-value", ":.lab:orders-value", "shop.Order"])
def test_schema_of_another_subject_is_reported(world: RegistryWorld, subject: str) -> None:
    world.register_schema("orders-value", '"int"')
    schema_id, _ = world.register_schema(subject, ORDER, schema_id=7)
    expected = "is not registered" if subject.startswith(":") else "is not registered under subject 'orders-value'"
    assert find_errors(world, schema_id) == {0: f"schema id 7 of the value {expected}"}


def test_alias_selects_subject_of_another_context(world: RegistryWorld) -> None:
    world.register_schema("orders-value", '"int"', schema_id=3)
    world.register_schema(":.lab:orders-value", ORDER, schema_id=7)
    world.register_schema(":.lab:payments-value", '"string"', schema_id=3)
    world.configure("orders-value", '{"alias":":.lab:orders-value"}')
    assert find_errors(world, 7) == {}
    assert find_errors(world, UUID(bytes=world.table.schemas[".lab", 7].guid)) == {}
    assert find_errors(world, 3, 9) == {
        0: "schema id 3 of the value is not registered under subject ':.lab:orders-value'",
        1: "schema id 9 of the value is not registered in context '.lab'",
    }
    world.configure("orders-value", '{"normalize":true}')
    assert find_errors(world, 3) == {}


def test_alias_in_the_default_context_applies_to_record_names(world: RegistryWorld) -> None:
    world.register_schema("common", ORDER)
    world.configure("shop.Order", '{"alias":"common"}')
    assert find_errors(world, 1, strategy=RECORD) == {}


def test_id_of_another_context_is_not_that_of_a_record_name(world: RegistryWorld) -> None:
    world.register_schema("payments-value", ORDER, schema_id=7)
    world.register_schema(":.lab:shop.Order", '"int"', schema_id=7)
    world.configure("shop.Order", '{"alias":":.lab:shop.Order"}')
    assert find_errors(world, 7, strategy=RECORD) == {
        0: "schema id 7 of the value is not registered under subject ':.lab:shop.Order'"
    }


def test_soft_deleted_schema_is_reported_until_it_is_registered_again(world: RegistryWorld) -> None:
    world.register_schema("orders-value", ORDER)
    world.delete("orders-value", 1)
    assert find_errors(world, 1) == {0: "schema id 1 of the value is not registered under subject 'orders-value'"}
    world.register_schema("orders-value", ORDER)
    assert find_errors(world, 1) == {}


def test_older_version_of_subject_is_valid(world: RegistryWorld) -> None:
    world.register_schema("orders-value", ORDER)
    world.register_schema("orders-value", '"int"')
    assert find_errors(world, 1, 2) == {}


def test_guid_of_registered_schema_is_valid(world: RegistryWorld) -> None:
    world.register_schema("orders-value", ORDER)
    guid = UUID(bytes=world.table.schemas[".", 1].guid)
    assert find_errors(world, guid) == {}
    unknown = UUID(int=5)
    assert find_errors(world, guid, unknown) == {1: f"schema GUID {unknown} of the value is not registered"}


def test_any_schema_with_the_guid_may_belong_to_the_subject(world: RegistryWorld) -> None:
    world.register_schema("payments-value", ORDER, schema_id=1)
    world.register_schema("orders-value", ORDER, schema_id=2)
    guid = UUID(bytes=world.table.schemas[".", 2].guid)
    assert world.table.find_ids_by_guid(".", guid.bytes) == (1, 2)
    assert find_errors(world, guid) == {}


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [(RECORD, "shop.Order"), (TOPIC_RECORD, "orders-shop.Order")],
    ids=["RECORD", "TOPIC_RECORD"],
)
@pytest.mark.parametrize(("schema_type", "text"), [(1, ORDER), (PROTOBUF, PROTOBUF_ORDER)], ids=["AVRO", "PROTOBUF"])
def test_schema_under_its_record_name_is_valid(
    world: RegistryWorld, strategy: SubjectNameStrategy, subject: str, schema_type: int, text: str
) -> None:
    world.register_schema(subject, text, schema_type=schema_type)
    assert find_errors(world, 1, strategy=strategy) == {}
    assert find_errors(world, 1, strategy=TOPIC) != {}


def test_json_schema_under_its_title_is_valid(world: RegistryWorld) -> None:
    world.register_schema("Order", JSON_ORDER, schema_type=JSON)
    assert find_errors(world, 1, strategy=RECORD) == {}


def test_nested_protobuf_message_may_name_the_subject(world: RegistryWorld) -> None:
    world.register_schema("shop.Order.Line", PROTOBUF_ORDER, schema_type=PROTOBUF)
    assert find_errors(world, 1, strategy=RECORD) == {}


def test_schema_under_another_record_name_is_reported(world: RegistryWorld) -> None:
    world.register_schema("shop.Payment", ORDER)
    world.register_schema("shop.Payment", PROTOBUF_ORDER, schema_type=PROTOBUF)
    assert find_errors(world, 1, 2, strategy=TOPIC_RECORD) == {
        0: "schema id 1 of the value is not registered under subject 'orders-shop.Order'",
        1: "schema id 2 of the value is not registered under subject 'orders-shop.Order' or 'orders-shop.Order.Line'",
    }


def test_schema_without_record_name_is_reported(world: RegistryWorld) -> None:
    world.register_schema("orders-value", '["null","int"]')
    (reason,) = find_errors(world, 1, strategy=RECORD).values()
    assert reason == (
        "schema id 1 of the value is that of a schema without a record name, which the subject name strategy requires"
    )


def test_part_without_rule_is_not_checked(world: RegistryWorld) -> None:
    usage = SchemaUsage({}, {9: 0}, {})
    rules = ProduceRules(10**6, key_schemas=TOPIC)
    assert SchemaValidator().find_errors([usage], rules, "orders", world.table) == {}


def test_number_of_reported_records_is_limited(world: RegistryWorld) -> None:
    errors = find_errors(world, *range(500))
    assert list(errors) == list(range(RECORD_ERRORS_MAX))


def test_large_schemas_are_searched_in_a_thread(world: RegistryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_validation, "INLINE_CHARACTERS_MAX", 2 * len(ORDER) - 1)
    validator = SchemaValidator()
    world.register_schema("shop.Order", ORDER)
    world.register_schema("shop.Order", ORDER.replace("[]", "[ ]"))
    with pytest.raises(RecordNamesMissingError) as missing:
        find_errors(world, 1, 2, strategy=RECORD, validator=validator)
    assert [schema.id for schema in missing.value.schemas] == [1, 2]
    asyncio.run(validator.load_names(missing.value.schemas))
    assert find_errors(world, 1, 2, strategy=RECORD, validator=validator) == {}


def test_names_are_extracted_once_per_schema(world: RegistryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    validator = SchemaValidator()
    world.register_schema("shop.Order", ORDER)
    assert find_errors(world, 1, strategy=RECORD, validator=validator) == {}
    monkeypatch.delattr(schema_validation, "_extract_names")
    assert find_errors(world, 1, strategy=TOPIC_RECORD, validator=validator) != {}


def schema(number: int) -> StoredSchema:
    return StoredSchema(".", number, 1, "text", (), "", bytes(16))


def test_cache_forgets_schema_whose_id_got_another_schema() -> None:
    cache, first, second = RecordNameCache(), schema(1), schema(1)
    cache.add(first, frozenset({"a"}))
    assert cache.find(first) == frozenset({"a"})
    assert cache.find(second) is None
    cache.add(second, frozenset())
    assert cache.find(second) == frozenset()
    assert cache.find(first) is None


@pytest.mark.parametrize("limits", [{"characters_max": 20}, {"schemas_max": 2}], ids=["characters", "schemas"])
def test_cache_evicts_oldest_schemas(limits: dict[str, int]) -> None:
    cache, schemas = RecordNameCache(**limits), [schema(number) for number in range(4)]
    for each in schemas:
        cache.add(each, frozenset({"ten" * 3 + "s"}))
    assert [cache.find(each) is not None for each in schemas] == [False, False, True, True]
    cache.add(schemas[0], frozenset({"x" * 1000}))
    assert cache.find(schemas[0]) is not None


def build_messages(count: int, prefix: str) -> str:
    """Return a Protobuf schema with many messages."""
    return "".join(['syntax = "proto3";\n', *(f"\nmessage {prefix}{number:03} {{\n}}\n" for number in range(count))])


@pytest.mark.parametrize("strategy", [RECORD, TOPIC_RECORD])
def test_batch_with_too_many_record_types_is_rejected(world: RegistryWorld, strategy: SubjectNameStrategy) -> None:
    """Without a limit, a batch that names 300 schemas of 1,000 messages takes 0.2 s of the event loop."""
    ids = [
        world.register_schema(f"other-{number}", build_messages(1000, f"M{number:03}x"), schema_type=PROTOBUF)[0]
        for number in range(21)
    ]
    validator = SchemaValidator()
    asyncio.run(validator.load_names([world.table.schemas[".", each] for each in ids]))
    with pytest.raises(InvalidRecord, match="too many record types or subjects: send smaller batches"):
        find_errors(world, *ids, strategy=strategy, validator=validator)
    assert len(find_errors(world, *ids[:15], strategy=strategy, validator=validator)) == 15


def test_many_record_types_are_accepted_if_subjects_match(world: RegistryWorld) -> None:
    ids = [
        world.register_schema(f"M{number:03}x999", build_messages(1000, f"M{number:03}x"), schema_type=PROTOBUF)[0]
        for number in range(21)
    ]
    validator = SchemaValidator()
    asyncio.run(validator.load_names([world.table.schemas[".", each] for each in ids]))
    assert find_errors(world, *ids, strategy=RECORD, validator=validator) == {}


def test_schema_with_many_subjects_is_looked_up_by_its_names(world: RegistryWorld) -> None:
    for number in range(30):
        world.register_schema(f"copy-{number}", ORDER)
    assert find_errors(world, 1, strategy=RECORD)[0].endswith("not registered under subject 'shop.Order'")
    world.register_schema("shop.Order", ORDER)
    assert find_errors(world, 1, strategy=RECORD) == {}
