"""The built-in `.proto` files, compared with the descriptors of Google's packages, and descriptors of all of them."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from chronik.formats.protobuf.built_in import BUILT_IN_PATHS, built_in_files
from chronik.formats.protobuf.descriptors import build_descriptor, parse_descriptor
from chronik.formats.protobuf.names import NameIndex
from chronik.formats.protobuf.syntax import ProtoFile

Fields = dict[str, Any]


def describe_types(messages: Any, enums: Any, scope: str) -> Fields:
    """Return the fields and enum values of types, by full name."""
    found: Fields = {}
    for message in messages:
        name = f"{scope}.{message.name}"
        for field in message.field:
            in_oneof = field.HasField("oneof_index")
            found[f"{name}.{field.name}"] = field.number, field.label, field.type, field.type_name, in_oneof
        found |= describe_types(message.nested_type, message.enum_type, name)
    for enum in enums:
        found |= {f"{scope}.{enum.name}.{value.name}": value.number for value in enum.value}
    return found


def describe_file(descriptor: descriptor_pb2.FileDescriptorProto) -> Fields:
    found = describe_types(descriptor.message_type, descriptor.enum_type, descriptor.package)
    return found | {"package": descriptor.package, "syntax": descriptor.syntax, "imports": list(descriptor.dependency)}


def build(path: str) -> bytes:
    return build_descriptor(built_in_files()[path], NameIndex(ProtoFile(), {}), path)


@pytest.mark.parametrize("path", [path for path in BUILT_IN_PATHS if path.startswith("google/")])
def test_built_in_file_declares_what_google_declares(path: str) -> None:
    module = importlib.import_module(path.removesuffix(".proto").replace("/", ".") + "_pb2")
    expected = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(expected)
    found = describe_file(descriptor_pb2.FileDescriptorProto.FromString(build(path)))
    published = describe_file(expected)
    # Newer versions of Google's package declare more fields of descriptors.
    assert found == {name: published.get(name) for name in found}
    if path != "google/protobuf/descriptor.proto":
        assert found == published


@pytest.mark.parametrize("path", BUILT_IN_PATHS)
def test_descriptor_of_a_built_in_file_parses_to_the_same_descriptor(path: str) -> None:
    descriptor = build(path)
    file = parse_descriptor(descriptor)
    again = build_descriptor(file, NameIndex(file, {}), path)
    assert descriptor_pb2.FileDescriptorProto.FromString(again) == descriptor_pb2.FileDescriptorProto.FromString(
        descriptor
    )
