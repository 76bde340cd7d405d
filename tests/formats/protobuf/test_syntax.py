"""The parser of `.proto` files: the syntax tree of unusual but valid source."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from typing import Any

import pytest

from chronik.formats.protobuf.syntax import (
    Message,
    Option,
    ProtoEnum,
    ProtoField,
    ProtoFile,
    ProtoSyntaxError,
    Symbol,
    iter_fields,
    parse_file,
    split_map_type,
)


def parse_message(body: str, syntax: str = "proto3") -> Message:
    (message,) = parse_file(f'syntax = "{syntax}"; message M {{ {body} }}').types
    assert isinstance(message, Message)
    return message


def parse_option(source: str) -> Option:
    (option,) = parse_file(f"option {source};").options
    return option


def test_file_keeps_its_declarations_in_order() -> None:
    file = parse_file(
        'syntax = "proto2"; package a.b; import "x.proto"; import public "y.proto"; import weak "z.proto"; ;'
        "message M {} enum E { A = 0; } extend M { optional int32 f = 100; } service S {}"
    )
    assert (file.syntax, file.package, file.is_proto3) == ("proto2", "a.b", False)
    assert (file.imports, file.public_imports, file.weak_imports) == (["x.proto"], ["y.proto"], ["z.proto"])
    assert [declared.name for declared in file.types] == ["M", "E"]
    assert file.extends[0].type == "M"
    assert file.services[0].name == "S"


def test_empty_file_has_no_declarations() -> None:
    assert parse_file("") == parse_file("// comment\n/* another */ ;") == ProtoFile()


@pytest.mark.parametrize(
    "name",
    ["message", "enum", "oneof", "option", "reserved", "extensions", "extend", "map", "syntax", "to", "max", "rpc"],
)
def test_keyword_is_a_valid_name_of_a_field(name: str) -> None:
    assert [field.name for field in parse_message(f"int32 {name} = 1;").fields] == [name]


@pytest.mark.parametrize("name", ["message", "enum", "oneof", "extend"])
def test_keyword_is_a_valid_name_of_a_type(name: str) -> None:
    field = parse_message(f"{name} f = 1;").fields[0]
    assert (field.type, field.name) == (name, "f")


@pytest.mark.parametrize(("number", "value"), [("0x1F", 31), ("017", 15), ("536870911", 536_870_911)])
def test_number_of_a_field_is_decimal_octal_or_hexadecimal(number: str, value: int) -> None:
    assert parse_message(f"int32 f = {number};").fields[0].number == value


def test_fields_have_labels_types_and_oneofs() -> None:
    message = parse_message(
        "optional int32 a = 1; repeated .p.T b = 2; map<string, p.T> c = 3; oneof o { bytes d = 4; }"
    )
    assert [(field.label, field.type, field.name, oneof and oneof.name) for field, oneof in iter_fields(message)] == [
        ("optional", "int32", "a", None),
        ("repeated", ".p.T", "b", None),
        (None, "map<string, p.T>", "c", None),
        (None, "bytes", "d", "o"),
    ]
    assert split_map_type("map<string, p.T>") == ("string", "p.T")
    assert split_map_type("string") is None


def test_group_is_a_field_with_a_message_type() -> None:
    field = parse_message("repeated group Item = 1 { required int32 n = 2; }", "proto2").fields[0]
    assert (field.label, field.type, field.name, field.number) == ("repeated", "Item", "item", 1)
    assert field.group is not None
    assert [inner.name for inner in field.group.fields] == ["n"]


def test_default_and_json_name_are_no_options() -> None:
    field = parse_message('optional int32 f = 1 [default = -5, json_name = "x", deprecated = true];', "proto2").fields[
        0
    ]
    assert field == ProtoField(
        "optional",
        "int32",
        "f",
        1,
        [Option("deprecated", Symbol("true", is_number=False))],
        Symbol("-5", is_number=True),
        "x",
    )


def test_reserved_and_extension_ranges_are_inclusive() -> None:
    message = parse_message('reserved 1, 3 to 5, 7 to max; reserved "a", "b"; extensions 100 to 200;', "proto2")
    assert message.reserved == [[1, (3, 5), (7, 536_870_911)], ["a", "b"]]
    assert message.extension_ranges[0].ranges == [(100, 200)]


def test_enum_has_negative_numbers_and_reserved_ranges() -> None:
    (enum,) = parse_file(
        "enum E { option allow_alias = true; A = 0; B = -1 [deprecated = true]; reserved -9 to -5; }"
    ).types
    assert isinstance(enum, ProtoEnum)
    assert [(value.name, value.number) for value in enum.values] == [("A", 0), ("B", -1)]
    assert enum.reserved == [[(-9, -5)]]


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("a = \"x\" 'y'", "xy"),
        (r'a = "\t\x41\101\u00e9\"\q"', '\tAAé"q'),
        (r'a = "\377"', "\udcff"),
        ("a = 1.5e+3", Symbol("1.5e+3", is_number=True)),
        ("a = -inf", Symbol("-inf", is_number=True)),
        ("a = SPEED", Symbol("SPEED", is_number=False)),
        ("a = [1, 2]", [Symbol("1", is_number=True), Symbol("2", is_number=True)]),
        ('a = { b: "x" c { d: "y" }; [p.ext]: "z" }', {"b": "x", "c": {"d": "y"}, "[p.ext]": "z"}),
        ('a = { b: "x", b: "y" }', {"b": ["x", "y"]}),
    ],
)
def test_value_of_an_option_is_parsed(source: str, value: Any) -> None:
    assert parse_option(source) == Option("a", value)


def test_name_of_an_option_may_have_extensions_and_fields() -> None:
    assert parse_option('(a.b).c.(d) = "x"') == Option(
        "a.b", Option("c", Option("d", "x", is_custom=True)), is_custom=True
    )


def test_methods_have_streams_and_options() -> None:
    (service,) = parse_file(
        "service S { rpc A (stream p.X) returns (.p.Y) { option deprecated = true; } "
        "rpc B (stream) returns (stream Y); }"
    ).services
    first, second = service.methods
    assert (first.request, first.has_request_stream, first.response, first.has_response_stream) == (
        "p.X",
        True,
        ".p.Y",
        False,
    )
    assert (second.request, second.has_request_stream, second.has_response_stream) == ("stream", False, True)


@pytest.mark.parametrize(
    "source",
    [
        "message M { int32 f = 1 }",
        "message M { int32 = 1; }",
        "message M { reserved 5 to 3; }",
        "message M { map<string> f = 1; }",
        "message M { oneof o { repeated int32 f = 1; } }",
        "message M { oneof o { map<int32, int32> f = 1; } }",
        "message M { repeated map<int32, int32> f = 1; }",
        "message M { group G = 1 {} }",
        "enum E { A = 4294967296; }",
        "enum E { A = 0; A = 1; }",
        'option a = "\ud800";',
        "option = 1;",
        "option a b;",
        "package a; package b;",
        'package a; syntax = "proto3";',
        "import 7;",
        "extend { }",
        "service S { message M {} }",
        "message M { int32 f = 99999999999999999999999; }",
        "$",
    ],
)
def test_invalid_source_is_an_error(source: str) -> None:
    with pytest.raises(ProtoSyntaxError):
        parse_file(source if source.startswith(("package", "option", "$")) else f'syntax = "proto3"; {source}')


@pytest.mark.parametrize(
    "text",
    ["9" * 500_000, "a." * 250_000, f'option a = "{"x" * 500_000}";', f"message A {{ {'a.' * 250_000}b c = 1; }}"],
    ids=["number", "name", "string", "type name"],
)
def test_memory_for_a_long_token_is_limited(text: str) -> None:
    tracemalloc.start()
    try:
        with suppress(ProtoSyntaxError):
            parse_file(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000
