"""Resolution of type names by the scoping rules of Protobuf."""

from __future__ import annotations

import pytest

from chronik.formats.protobuf.names import NameIndex
from chronik.formats.protobuf.syntax import ProtoSyntaxError, parse_file

ROOT = """
syntax = "proto3"; package a.b; import "other.proto";
message Outer { message Inner { message T {} } message T {} extend google.protobuf.FieldOptions { int32 nested = 2; } }
message T {}
extend google.protobuf.FieldOptions { int32 note = 1; }
"""
OTHER = 'syntax = "proto3"; package a; message Shared {} message T {}'


def build_index() -> NameIndex:
    return NameIndex(parse_file(ROOT), {"other.proto": parse_file(OTHER)})


@pytest.mark.parametrize(
    ("name", "scope", "found"),
    [
        ("T", "a.b.Outer.Inner", "a.b.Outer.Inner.T"),
        ("T", "a.b.Outer", "a.b.Outer.T"),
        ("T", "a.b", "a.b.T"),
        ("T", "a", "a.T"),
        (".a.T", "a.b.Outer.Inner", "a.T"),
        ("Inner.T", "a.b.Outer", "a.b.Outer.Inner.T"),
        ("b.T", "a.b.Outer", "a.b.T"),
        ("Shared", "a.b.Outer", "a.Shared"),
        ("a.Shared", "a.b.Outer", "a.Shared"),
        ("Unknown", "a.b", None),
        (".T", "a.b", None),
        ("T", "", None),
        ("google.protobuf.Timestamp", "a.b", "google.protobuf.Timestamp"),
    ],
)
def test_name_is_resolved_from_the_innermost_scope(name: str, scope: str, found: str | None) -> None:
    info = build_index().find_type(name, scope)
    assert (info and info.full_name) == found


@pytest.mark.parametrize(
    ("name", "scope", "found"),
    [
        ("note", "a.b.Outer", "a.b.note"),
        ("b.note", "a.b", "a.b.note"),
        (".a.b.note", "", "a.b.note"),
        ("nested", "a.b.Outer", "a.b.Outer.nested"),
        ("nested", "a.b", None),
        ("confluent.field_meta", "a.b", "confluent.field_meta"),
    ],
)
def test_extension_is_resolved_from_the_innermost_scope(name: str, scope: str, found: str | None) -> None:
    extension = build_index().find_extension(name, scope)
    assert (extension and extension.full_name) == found


def test_declaration_of_the_schema_precedes_that_of_a_built_in_file() -> None:
    file = parse_file('syntax = "proto3"; package google.protobuf; message Timestamp { string text = 1; }')
    info = NameIndex(file, {}).find_type(".google.protobuf.Timestamp", "")
    assert info is not None
    assert info.declaration is file.types[0]


def test_full_name_beyond_the_limit_is_an_error() -> None:
    nested = "".join(f"message {'M' * 1000}{level} {{" for level in range(2)) + "}" * 2
    with pytest.raises(ProtoSyntaxError, match="more than 1024 characters"):
        NameIndex(parse_file(nested), {})
