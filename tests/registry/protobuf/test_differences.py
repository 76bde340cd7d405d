"""Compatibility of Protobuf schemas: the differences, their messages, and the limits of comparisons."""

from __future__ import annotations

import pytest

from chronik.registry.protobuf import parse
from chronik.registry.protobuf.differences import (
    DIFFERENCES_MAX,
    INCOMPATIBLE,
    DifferenceType,
    SchemaFiles,
    find_differences,
)
from chronik.registry.schema import InvalidSchemaError, ResolvedReference


def compare(original: str, update: str, syntax: str = "proto3") -> list[str]:
    """Return the differences between two schemas, as a type and a path."""
    schemas = [parse(f'syntax = "{syntax}"; {text}', []) for text in (original, update)]
    files = [SchemaFiles(schema.file, schema.names) for schema in schemas]
    return [f"{each.type} {each.path}" for each in find_differences(files[0], files[1])]


@pytest.mark.parametrize(
    ("original", "update", "differences"),
    [
        ("package a;", "package b;", ["PACKAGE_CHANGED #/"]),
        ("", "message M {}", ["MESSAGE_ADDED #/M"]),
        ("message M {}", "", ["MESSAGE_REMOVED #/M"]),
        ("message A {} message B {}", "message B {} message A {}", ["MESSAGE_MOVED #/A", "MESSAGE_MOVED #/B"]),
        ("", "enum E { A = 0; }", ["ENUM_ADDED #/E"]),
        ("enum E { A = 0; }", "", ["ENUM_REMOVED #/E"]),
        ("enum E { A = 0; }", "enum E { A = 0; B = 1; }", ["ENUM_CONST_ADDED #/E/1"]),
        ("enum E { A = 0; B = 1; }", "enum E { A = 0; }", ["ENUM_CONST_REMOVED #/E/1"]),
        ("enum E { A = 0; }", "enum E { B = 0; }", ["ENUM_CONST_CHANGED #/E/0"]),
        ("message M {}", "message M { int32 a = 1; }", ["FIELD_ADDED #/M/1"]),
        ("message M { int32 a = 1; }", "message M {}", ["FIELD_REMOVED #/M/1"]),
        ("message M { int32 a = 1; }", "message M { int32 b = 1; }", ["FIELD_NAME_CHANGED #/M/1"]),
        ("message M { int32 a = 1; }", "message M { uint64 a = 1; }", []),
        ("message M { int32 a = 1; }", "message M { E a = 1; } enum E { A = 0; }", ["ENUM_ADDED #/E"]),
        ("message M { string a = 1; }", "message M { bytes a = 1; }", []),
        ("message M { fixed32 a = 1; }", "message M { sfixed32 a = 1; }", []),
        ("message M { int32 a = 1; }", "message M { sint32 a = 1; }", ["FIELD_SCALAR_KIND_CHANGED #/M/1"]),
        ("message M { float a = 1; }", "message M { double a = 1; }", ["FIELD_SCALAR_KIND_CHANGED #/M/1"]),
        ("message M { M a = 1; }", "message M { int32 a = 1; }", ["FIELD_KIND_CHANGED #/M/1"]),
        ("message M { map<int32, M> a = 1; }", "message M { map<int64, M> a = 1; }", []),
        (
            "message M { map<int32, int32> a = 1; }",
            "message M { map<string, int32> a = 1; }",
            ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
        ),
        (
            "message M { repeated int32 a = 1; }",
            "message M { optional int32 a = 1; }",
            ["FIELD_NUMERIC_LABEL_CHANGED #/M/1"],
        ),
        (
            "message M { repeated string a = 1; }",
            "message M { optional string a = 1; }",
            ["FIELD_STRING_OR_BYTES_LABEL_CHANGED #/M/1"],
        ),
        (
            "message M { A a = 1; } message A {} message B {}",
            "message M { B a = 1; } message A {} message B {}",
            ["FIELD_NAMED_TYPE_CHANGED #/M/1"],
        ),
        (
            "message M { int32 a = 1; }",
            "message M { oneof o { int32 a = 1; int32 b = 2; } }",
            ["ONEOF_ADDED #/M/o", "ONEOF_FIELD_ADDED #/M/o/2"],
        ),
        (
            "message M { oneof o { int32 a = 1; int32 b = 2; } }",
            "message M { oneof o { int32 a = 1; } }",
            ["ONEOF_FIELD_REMOVED #/M/o/2"],
        ),
        ("message M { oneof o { int32 a = 1; } }", "message M {}", ["ONEOF_REMOVED #/M/o"]),
        (
            "message M { oneof o { int32 a = 1; int32 b = 2; } }",
            "message M { int32 a = 1; oneof o { int32 b = 2; } }",
            ["ONEOF_FIELD_MOVED_TO_TOP_LEVEL #/M/1"],
        ),
        (
            "message M { int32 a = 1; int32 b = 2; }",
            "message M { oneof o { int32 a = 1; int32 b = 2; } }",
            ["MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o", "ONEOF_ADDED #/M/o"],
        ),
        (
            "message M { int32 a = 1; oneof o { int32 b = 2; } }",
            "message M { oneof o { int32 a = 1; int32 b = 2; } }",
            ["FIELD_MOVED_TO_EXISTING_ONEOF #/M/o"],
        ),
    ],
)
def test_change_is_found_with_its_type_and_path(original: str, update: str, differences: list[str]) -> None:
    assert compare(original, update) == differences


@pytest.mark.parametrize(
    ("original", "update", "difference"),
    [
        ("message M {}", "message M { required int32 a = 1; }", "REQUIRED_FIELD_ADDED #/M/1"),
        ("message M { required int32 a = 1; }", "message M {}", "REQUIRED_FIELD_REMOVED #/M/1"),
        (
            "message M { optional group G = 1 {} }",
            "message M { optional G g = 1; message G {} }",
            "FIELD_KIND_CHANGED #/M/1",
        ),
    ],
)
def test_change_of_a_proto2_schema_is_found(original: str, update: str, difference: str) -> None:
    assert compare(original, update, "proto2") == [difference]


def test_message_of_an_incompatible_difference_is_that_of_confluent() -> None:
    writer = parse('syntax = "proto3"; message M { int32 a = 1; string b = 2; }', [])
    reader = parse('syntax = "proto3"; message M { string a = 1; }', [])
    assert reader.find_incompatibilities(writer) == [
        '{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"The kind of a SCALAR field at path \'#/M/1\' in the '
        '%s schema does not match its kind in the %s schema"}'
    ]


def test_each_incompatible_type_has_a_message_with_both_sides() -> None:
    assert all(message.count("%s") == 2 for message in INCOMPATIBLE.values())
    assert DifferenceType.FIELD_REMOVED not in INCOMPATIBLE


def test_change_in_a_reference_is_found_where_a_field_uses_it() -> None:
    text = 'syntax = "proto3"; import "b.proto"; message M { b.B f = 1; b.B g = 2; }'
    schemas = [
        parse(text, [ResolvedReference("b.proto", f'syntax = "proto3"; package b; message B {{ {field} }}')])
        for field in ("int32 x = 1;", "string x = 1;")
    ]
    types = [message.split('"')[1] for message in schemas[1].find_incompatibilities(schemas[0])]
    assert types == ["FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED", "FIELD_NAMED_TYPE_CHANGED"]


def test_recursive_types_of_references_are_compared_once() -> None:
    text = 'syntax = "proto3"; import "b.proto"; message M { b.B f = 1; }'
    reference = ResolvedReference("b.proto", 'syntax = "proto3"; package b; message B { B next = 1; int32 x = 2; }')
    schema = parse(text, [reference])
    assert schema.find_incompatibilities(schema) == []


def test_number_of_differences_is_limited() -> None:
    original = "".join(f"message M{n} {{}}" for n in range(DIFFERENCES_MAX + 500))
    differences = compare(f"{original}", "")
    assert len(differences) == DIFFERENCES_MAX + 1


def test_incompatible_difference_after_many_compatible_ones_is_found() -> None:
    fields = "".join(f"int32 a{n} = {n};" for n in range(2, DIFFERENCES_MAX + 500))
    original = f"message M {{ {fields} }} message N {{ int32 a = 1; }}"
    differences = compare(original, "message M {} message N { string a = 1; }")
    assert differences[-1] == "FIELD_SCALAR_KIND_CHANGED #/N/1"


def test_long_chain_of_types_in_references_is_an_error() -> None:
    chain = "".join(f"message B{n} {{ B{n + 1} f = 1; }}" for n in range(200)) + "message B200 {}"
    reference = ResolvedReference("b.proto", f'syntax = "proto3"; package b; {chain}')
    schema = parse('syntax = "proto3"; import "b.proto"; message M { b.B0 f = 1; }', [reference])
    with pytest.raises(InvalidSchemaError, match="a chain of types is too long"):
        schema.find_incompatibilities(schema)


def test_comparison_of_many_pairs_of_types_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # Types of equal names in different packages: each field compares another pair.
    count = 10
    fields = "".join(f"int32 x{n} = {n + 1};" for n in range(100))
    references = [
        ResolvedReference(f"p{n}.proto", f'syntax = "proto3"; package p{n}; message X {{ {fields} }}')
        for n in range(count)
    ]

    def declare(*, is_writer: bool) -> str:
        packages = [n % count if is_writer else n // count for n in range(count * count)]
        return "".join(f"p{package}.X f{n} = {n + 1};" for n, package in enumerate(packages))

    writer, reader = (
        parse(f'syntax = "proto3"; message M {{ {declare(is_writer=is_writer)} }}', references)
        for is_writer in (True, False)
    )
    assert reader.find_incompatibilities(writer) == []
    monkeypatch.setattr("chronik.registry.protobuf.differences.STEPS_MAX", 100 * count * count)
    with pytest.raises(InvalidSchemaError, match="too complex to compare"):
        reader.find_incompatibilities(writer)
