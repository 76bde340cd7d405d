"""Protobuf schemas in the registry: parsing, canonical text, normal form and output formats."""

from __future__ import annotations

import base64
import contextlib
import time

import pytest

from chronik.registry.protobuf import parse
from chronik.registry.schema import InvalidSchemaError, ResolvedReference

ORDER = """
// The orders of a shop.
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
option java_package = "com.example";

message Order {
  string customer = 2; /* name */ int64 id = 1;
  map<string, Item> items = 4;
  google.protobuf.Timestamp created = 3;
  oneof payment { string card = 7; string iban = 6; }
  optional Status status = 5 [deprecated = true];
  reserved "old", "older"; reserved 20 to 30, 10;
  message Item { double price = 1; }
}
enum Status { OPEN = 0; PAID = 1; }
service Shop { rpc Buy (Order) returns (stream Order.Item); }
"""


def test_canonical_text_has_the_layout_of_confluent_without_comments() -> None:
    assert parse(ORDER, []).canonical_text == (
        'syntax = "proto3";\n'
        "package shop;\n"
        "\n"
        'import "google/protobuf/timestamp.proto";\n'
        "\n"
        'option java_package = "com.example";\n'
        "\n"
        "message Order {\n"
        '  reserved "old", "older";\n'
        "  reserved 20 to 30, 10;\n"
        "\n"
        "  string customer = 2;\n"
        "  int64 id = 1;\n"
        "  map<string, Item> items = 4;\n"
        "  google.protobuf.Timestamp created = 3;\n"
        "  optional Status status = 5 [deprecated = true];\n"
        "\n"
        "  oneof payment {\n"
        "    string card = 7;\n"
        "    string iban = 6;\n"
        "  }\n"
        "\n"
        "  message Item {\n"
        "    double price = 1;\n"
        "  }\n"
        "}\n"
        "enum Status {\n"
        "  OPEN = 0;\n"
        "  PAID = 1;\n"
        "}\n"
        "\n"
        "service Shop {\n"
        "  rpc Buy (Order) returns (stream Order.Item);\n"
        "}\n"
    )


def test_normal_form_sorts_by_number_and_has_full_names() -> None:
    assert parse(ORDER, []).normalize() == (
        'syntax = "proto3";\n'
        "package shop;\n"
        "\n"
        'import "google/protobuf/timestamp.proto";\n'
        "\n"
        'option java_package = "com.example";\n'
        "\n"
        "message Order {\n"
        "  reserved 10;\n"
        "  reserved 20 to 30;\n"
        '  reserved "old";\n'
        '  reserved "older";\n'
        "\n"
        "  int64 id = 1;\n"
        "  string customer = 2;\n"
        "  .google.protobuf.Timestamp created = 3;\n"
        "  map<string, .shop.Order.Item> items = 4;\n"
        "  optional .shop.Status status = 5 [deprecated = true];\n"
        "\n"
        "  oneof payment {\n"
        "    string iban = 6;\n"
        "    string card = 7;\n"
        "  }\n"
        "\n"
        "  message Item {\n"
        "    double price = 1;\n"
        "  }\n"
        "}\n"
        "enum Status {\n"
        "  OPEN = 0;\n"
        "  PAID = 1;\n"
        "}\n"
        "\n"
        "service Shop {\n"
        "  rpc Buy (.shop.Order) returns (stream .shop.Order.Item);\n"
        "}\n"
    )


@pytest.mark.parametrize("form", ["canonical", "normal"])
def test_text_of_a_parsed_schema_parses_to_itself(form: str) -> None:
    schema = parse(ORDER, [])
    text = schema.canonical_text if form == "canonical" else schema.normalize()
    again = parse(text, [])
    assert text == (again.canonical_text if form == "canonical" else again.normalize())
    assert again.normalize() == schema.normalize()


def test_serialized_descriptor_parses_to_the_same_normal_form() -> None:
    schema = parse(ORDER, [])
    serialized = schema.render("serialized")
    assert base64.b64decode(serialized)
    again = parse(serialized, [])
    assert again.normalize() == schema.normalize()
    assert again.find_incompatibilities(schema) == schema.find_incompatibilities(again) == []


def test_confluent_metadata_survives_serialization() -> None:
    text = (
        'syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto"; message M {'
        ' confluent.type.Decimal f = 1 [(confluent.field_meta) = { doc: "x", tags: ["PII"],'
        ' params: [{key: "precision", value: "5"}, {key: "scale", value: "2"}] }]; }'
    )
    again = parse(parse(text, []).render("serialized"), [])
    assert again.file.types[0].fields[0].options[0].value == {  # type: ignore[union-attr]
        "doc": "x",
        "params": [{"value": "5", "key": "precision"}, {"value": "2", "key": "scale"}],
        "tags": ["PII"],
    }


def test_unknown_output_format_is_the_canonical_text() -> None:
    schema = parse(ORDER, [])
    assert schema.render("") == schema.render("unknown") == schema.canonical_text


def test_ignore_extensions_omits_custom_options() -> None:
    text = (
        'syntax = "proto3"; import "google/protobuf/descriptor.proto"; '
        "extend google.protobuf.FieldOptions { string note = 50000; } "
        'message M { int32 f = 1 [(note) = "x", deprecated = true]; }'
    )
    rendered = parse(text, []).render("ignore_extensions")
    assert "note" not in rendered
    assert "int32 f = 1 [deprecated = true];" in rendered


def test_types_of_references_are_resolved() -> None:
    text = 'syntax = "proto3"; import "b.proto"; message M { b.B f = 1; }'
    reference = ResolvedReference("b.proto", 'syntax = "proto3"; package b; message B { int32 x = 1; }')
    assert "  .b.B f = 1;\n" in parse(text, [reference]).normalize()
    with pytest.raises(InvalidSchemaError, match=r"Could not resolve type: b\.B"):
        parse(text, [])


def test_stored_schema_may_have_unresolved_types() -> None:
    schema = parse('syntax = "proto3"; message M { Unknown f = 1; }', [], is_new=False)
    assert schema.find_incompatibilities(schema) == []
    for use in (schema.normalize, lambda: schema.render("serialized")):
        with pytest.raises(InvalidSchemaError, match="Could not resolve type: Unknown"):
            use()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", None),
        ("message", "unexpected end of file"),
        ('{"type": "string"}', "unexpected label"),
        ('syntax = "proto4";', "unexpected syntax: proto4"),
        ('edition = "2023"; message M {}', "edition is not currently supported"),
        ('syntax = "proto3"; message M { int32 f = 0; }', "0 is not between 1 and 536870911"),
        ('syntax = "proto3"; message M { int32 f = 19000; }', "reserved for Protobuf"),
        ('syntax = "proto3"; message M { int32 f = 1; int32 g = 1; }', "uses field number 1 twice"),
        ('syntax = "proto3"; message M { int32 f = 1; int32 f = 2; }', "f is already defined in message M"),
        ('syntax = "proto3"; message M {} message M {}', "M is already defined in the file"),
        ('syntax = "proto3"; message M { required int32 f = 1; }', "'required' label forbidden in proto3"),
        ("message M { int32 f = 1; }", "unexpected label: int32"),
        ('syntax = "proto3"; message M { map<double, int32> f = 1; }', "map key must be non-byte"),
        ("message M { /* ", "unterminated comment"),
        ('option x = "', "unterminated string"),
        (base64.b64encode(b"\x0a\x05").decode(), "not a valid descriptor: field name is truncated"),
        (base64.b64encode(b"\x22\x06\x0a\x04M {}").decode(), "not a valid name: 'M {}'"),
    ],
)
def test_invalid_schema_is_an_error_that_names_the_problem(text: str, problem: str | None) -> None:
    if problem is None:
        assert parse(text, []).canonical_text == ""
    else:
        with pytest.raises(InvalidSchemaError, match=problem):
            parse(text, [])


def test_error_names_line_and_column() -> None:
    with pytest.raises(InvalidSchemaError, match="Syntax error in :2:6: expected a name"):
        parse('syntax = "proto3";\nenum 7 {}', [])


# Limits


def nest(depth: int) -> str:
    return 'syntax = "proto3";' + "message M {" * depth + "}" * depth


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (nest(33), "messages are nested more than 32 levels deep"),
        ("option o = " + "{a: " * 40 + "1" + "}" * 40 + ";", "values of options are nested more than 32 levels deep"),
        (f"option (a){'.b' * 40} = 1;", "an option names more than 32 nested fields"),
        ("; " * 250_001, "more than 250000 tokens"),
        (" " * (1 << 20) + " ", "the maximum is 1048576"),
        (f"message {'M' * 1025} {{}}", "a name has more than 1024 characters"),
        (f"package {'.'.join('p' * 40)};", "the package has more than 32 components"),
        ('import "\\n";', "an import path is too long or contains control characters"),
    ],
    ids=["messages", "values", "option-names", "tokens", "characters", "name", "package", "import"],
)
def test_schema_beyond_a_limit_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(InvalidSchemaError, match=problem):
        parse(text, [])


def test_schema_at_the_nesting_limit_is_valid() -> None:
    assert parse(nest(32), []).normalize().count("message") == 32


@pytest.mark.parametrize(
    "text",
    [
        'syntax = "proto3"; message M {' + "".join(f"int32 f{n}={n % 18000 + 1};" for n in range(18_000)) + "}",
        'syntax = "proto3";' + "".join(f"message M{n}{{M{n // 2} f=1;}}" for n in range(20_000)),
        "enum E {" + "".join(f"V{n}={n};" for n in range(50_000)) + "}",
        "/*" * 500_000,
        '"' + "\\" * 1_000_000,
        "a" * 1_000_000,
        "1" * 1_000_000,
        base64.b64encode(b"\x22\x02\x12\x00" * 190_000).decode(),
    ],
    ids=["fields", "messages", "enum", "comment", "string", "word", "number", "descriptor"],
)
def test_large_or_malformed_text_is_handled_in_bounded_time(text: str) -> None:
    start = time.process_time()
    with contextlib.suppress(InvalidSchemaError):
        parse(text, [])
    assert time.process_time() - start < 20
