"""JSON Schemas in the registry: parsing, normal form and compatibility."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from chronik.formats.avro.schema_text import format_json
from chronik.formats.json_schema.documents import DocumentError, JsonValue, SchemaDocuments
from chronik.registry.json_schema.comparison import find_incompatibilities
from chronik.registry.json_schema.loader import load
from chronik.registry.json_schema.nodes import ReferenceNode, SchemaNode
from chronik.registry.schema import InvalidSchemaError, ResolvedReference


def parse(text: str, references: Sequence[ResolvedReference], *, is_new: bool = True) -> JsonSchema:
    """Parse a JSON Schema.

    Args:
        text: The schema in JSON.
        references: The schemas that it refers to, each before the schemas that refer to it.
        is_new: Whether to check the keywords and the references. Otherwise, they are checked by the first comparison.

    Raises:
        InvalidSchemaError: The schema is invalid or too complex.
    """
    try:
        documents = SchemaDocuments(text, [(reference.name, reference.text) for reference in references])
    except DocumentError as error:
        raise InvalidSchemaError(str(error)) from None
    schema = JsonSchema(documents)
    if is_new:
        _ = schema.root
    return schema


class JsonSchema:
    """A parsed JSON Schema. See `Schema`."""

    def __init__(self, documents: SchemaDocuments) -> None:
        """Set the documents.

        Raises:
            InvalidSchemaError: The schema contains characters that are not valid Unicode.
        """
        self._references: list[ReferenceNode] = []
        self._documents = documents
        self._canonical_text = _format_text(documents.root.value)

    def __del__(self) -> None:
        # Recursive schemas are reference cycles, which the garbage collector does not find if a node has frozen them
        # while they were in use: see `chronik.node.memory_tuning`.
        for reference in self._references:
            reference.target = None

    @property
    def canonical_text(self) -> str:
        """The schema as Confluent's registry writes it: without whitespace, with the properties in their order."""
        return self._canonical_text

    def normalize(self) -> str:
        """Return the text in Confluent's normal form, with the properties of objects sorted."""
        return _format_text(_sort_keys(self._documents.root.value))

    @cached_property
    def root(self) -> SchemaNode:
        """The tree of the schema, which is valid as long as this object exists.

        Raises:
            InvalidSchemaError: A keyword is invalid, a reference cannot be resolved, or the schema is too complex.
        """
        try:
            return load(self._documents, self._references)
        except DocumentError as error:
            raise InvalidSchemaError(str(error)) from None

    def find_incompatibilities(self, writer: JsonSchema) -> list[str]:
        """Return why this schema rejects values that `writer` accepts, in the wording of Confluent's registry.

        Raises:
            InvalidSchemaError: The comparison would take too many steps, or a schema is invalid.
        """
        return find_incompatibilities(writer.root, self.root)


def _format_text(value: JsonValue) -> str:
    text = format_json(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidSchemaError("The schema contains a surrogate character, which is not valid Unicode") from None
    return text


def _sort_keys(value: JsonValue) -> JsonValue:
    """Sort the keys of all objects by their UTF-16 code units, as Java does."""
    if isinstance(value, dict):
        return {key: _sort_keys(value[key]) for key in sorted(value, key=_encode_utf16)}
    return list(map(_sort_keys, value)) if isinstance(value, list) else value


def _encode_utf16(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")
