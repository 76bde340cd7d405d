"""Protobuf schemas in the registry: parsing, canonical and normal form, and compatibility."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from functools import cached_property

from chronik.formats.protobuf.descriptors import build_descriptor, parse_descriptor
from chronik.formats.protobuf.names import NameIndex
from chronik.formats.protobuf.syntax import TEXT_LENGTH_MAX, ProtoFile, ProtoSyntaxError, parse_file
from chronik.registry.protobuf.differences import SchemaFiles, find_differences
from chronik.registry.protobuf.text import normalize_file, render_file
from chronik.registry.schema import InvalidSchemaError, ResolvedReference


def parse(text: str, references: Sequence[ResolvedReference], *, is_new: bool = True) -> ProtobufSchema:
    """Parse a Protobuf schema: a `.proto` file, or a serialized `FileDescriptorProto` in Base64.

    Args:
        text: The schema.
        references: The files that it imports, directly or through others, by import path.
        is_new: Whether all types must be declared in the schema, its references or the built-in files.

    Raises:
        InvalidSchemaError: The schema is invalid or too complex.
    """
    try:
        file = parse_schema_file(text)
        dependencies: dict[str, ProtoFile] = {}
        for reference in references:
            if reference.name not in dependencies:
                dependencies[reference.name] = parse_schema_file(reference.text)
        schema = ProtobufSchema(file, dependencies)
        if is_new:
            schema.normalize()
    except ProtoSyntaxError as error:
        raise InvalidSchemaError(str(error)) from None
    return schema


def parse_schema_file(text: str) -> ProtoFile:
    """Parse a `.proto` file or a serialized descriptor in Base64.

    Raises:
        ProtoSyntaxError: The text is neither.
    """
    try:
        return parse_file(text)
    except ProtoSyntaxError as error:
        if len(text) > TEXT_LENGTH_MAX:
            raise
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise error from None
    # The text of the descriptor is parsed, so that the same checks apply.
    return parse_file(render_file(parse_descriptor(data)))


class ProtobufSchema:
    """A parsed Protobuf schema. See `Schema`."""

    def __init__(self, file: ProtoFile, dependencies: Mapping[str, ProtoFile]) -> None:
        self.file = file
        self.names = NameIndex(file, dependencies)
        self._canonical_text = render_file(file)

    @property
    def canonical_text(self) -> str:
        """The schema with Confluent's layout, without comments."""
        return self._canonical_text

    def normalize(self) -> str:
        """Return the text in Confluent's normal form: sorted, and with full names of types."""
        return self._normal_text

    @cached_property
    def _normal_text(self) -> str:
        try:
            return normalize_file(self.file, self.names)
        except ProtoSyntaxError as error:
            raise InvalidSchemaError(str(error)) from None

    def render(self, output_format: str) -> str:
        """Return the schema in one of Confluent's formats; the canonical text if the format is unknown.

        The formats are `serialized`, a serialized `FileDescriptorProto` in Base64, and `ignore_extensions`.

        Raises:
            InvalidSchemaError: A type is not declared.
        """
        try:
            match output_format:
                case "serialized":
                    return base64.b64encode(build_descriptor(self.file, self.names, "default")).decode()
                case "ignore_extensions":
                    return render_file(self.file, ignore_extensions=True)
        except ProtoSyntaxError as error:
            raise InvalidSchemaError(str(error)) from None
        return self._canonical_text

    def find_incompatibilities(self, writer: ProtobufSchema) -> list[str]:
        """Return why this schema cannot read all data written with `writer`, in the wording of Confluent's registry.

        Raises:
            InvalidSchemaError: The comparison would take too many steps.
        """
        try:
            differences = find_differences(SchemaFiles(writer.file, writer.names), SchemaFiles(self.file, self.names))
        except ProtoSyntaxError as error:
            raise InvalidSchemaError(str(error)) from None
        return [difference.message for difference in differences if not difference.is_compatible]
