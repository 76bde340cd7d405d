"""JSON Schemas with their references, as one document that any validator accepts.

The validator must resolve references as the registry does, and must never fetch a document. Hence it receives a copy:
each schema that is referred to becomes a definition with a number. The copy has only the keywords that apply to values,
and those that determine the types of columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from chronik.formats.codec import UnsupportedSchemaError, WriterSchema
from chronik.formats.json_schema.documents import (
    DocumentError,
    Draft,
    JsonValue,
    Location,
    Metaschema,
    SchemaDocuments,
    describe_json,
)

SUBSCHEMAS_MAX: Final = 20_000
"""Maximum number of subschemas in a schema and its references."""

CONTENT_ENCODING: Final = "chronik.contentEncoding"
"""The keyword `contentEncoding` in a bundle. Some validators would reject values with another encoding."""

_SCHEMA_KEYWORDS: Final = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_LIST_KEYWORDS: Final = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_MAP_KEYWORDS: Final = frozenset({"dependencies", "dependentSchemas", "patternProperties", "properties"})
_VALUE_KEYWORDS: Final = frozenset(
    {
        "const",
        "dependentRequired",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxContains",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minContains",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
        "required",
        "type",
        "uniqueItems",
    }
)
_ANNOTATIONS: Final = frozenset({"connect.parameters", "connect.type", "default", "format", "title"})
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")

_URIS: Final = {
    Draft.DRAFT_4: "http://json-schema.org/draft-04/schema#",
    Draft.DRAFT_6: "http://json-schema.org/draft-06/schema#",
    Draft.DRAFT_7: "http://json-schema.org/draft-07/schema#",
    Draft.DRAFT_2019_09: "https://json-schema.org/draft/2019-09/schema",
    Draft.DRAFT_2020_12: "https://json-schema.org/draft/2020-12/schema",
}


class SchemaBundle:
    """A schema in which each reference is `#` or the number of a definition."""

    def __init__(self, schema: WriterSchema) -> None:
        """Parse a schema and the schemas to which it refers.

        Raises:
            UnsupportedSchemaError: A schema is invalid or too complex, or a reference cannot be resolved.
        """
        try:
            self._documents = SchemaDocuments(schema.text, schema.references)
            self.draft: Final = self._documents.draft
            self._prefix: Final = "#/definitions/" if self.draft <= Draft.DRAFT_7 else "#/$defs/"
            self._count = 0
            self._numbers: dict[int, int] = {}
            """The number of the definition of each object in the documents, by identity."""
            self._pending: deque[Location] = deque()
            self.root: Final = self._copy(self._documents.root)
            self.definitions: Final[list[JsonValue]] = []
            while self._pending:
                self.definitions.append(self._copy(self._pending.popleft()))
        except DocumentError as error:
            raise UnsupportedSchemaError(f"invalid JSON Schema: {error}") from None

    def build_document(self) -> JsonValue:
        """Return the schema as one document."""
        if not isinstance(self.root, dict):
            return {"$schema": _URIS[self.draft], **({} if self.root else {"not": {}})}
        definitions = {str(number): each for number, each in enumerate(self.definitions)}
        return {"$schema": _URIS[self.draft], **self.root, self._prefix[2:-1]: definitions}

    def find_target(self, node: JsonValue) -> JsonValue | None:
        """Return the schema to which a node refers, or None if it has no reference or one to the schema of schemas."""
        reference = node.get("$ref")
        if reference == "#":
            return self.root
        if isinstance(reference, str) and reference.startswith(self._prefix):
            return self.definitions[int(reference.removeprefix(self._prefix))]
        return None

    def _copy(self, location: Location) -> JsonValue:
        value = location.value
        if isinstance(value, bool):
            # Draft 4 has no booleans as schemas, but Confluent's registry accepts them.
            return value if self.draft > Draft.DRAFT_4 else {} if value else {"not": {}}
        if not isinstance(value, dict):
            raise DocumentError(f"a schema is an object or a boolean, this is {describe_json(value)}")
        self._count += 1
        if self._count > SUBSCHEMAS_MAX:
            raise UnsupportedSchemaError(f"the JSON Schema has more than {SUBSCHEMAS_MAX:,} subschemas")
        copied: dict[str, JsonValue] = {}
        for keyword in _REFERENCES if self.draft > Draft.DRAFT_7 else _REFERENCES[:1]:
            if keyword in value:
                self._add_reference(copied, keyword, location)
        if copied and self.draft <= Draft.DRAFT_7:  # other keywords have no effect alongside a reference
            return {**copied, **{key: value[key] for key in _ANNOTATIONS if key in value}}
        for keyword, element in value.items():
            if keyword in _LIST_KEYWORDS and isinstance(element, list):
                copied[keyword] = [self._copy(self._documents.enter(each, location)) for each in element]
            elif keyword in _MAP_KEYWORDS and isinstance(element, dict):
                copied[keyword] = dict(self._copy_map(keyword, element, location))
            elif keyword in _SCHEMA_KEYWORDS:
                copied[keyword] = self._copy(self._documents.enter(element, location))
            elif keyword in _VALUE_KEYWORDS or keyword in _ANNOTATIONS:
                copied[keyword] = element
            elif keyword == "contentEncoding":
                copied[CONTENT_ENCODING] = element
            elif keyword in _LIST_KEYWORDS or keyword in _MAP_KEYWORDS:
                raise DocumentError(f"{keyword}: {describe_json(element)} is not valid here")
        return copied

    def _copy_map(
        self, keyword: str, schemas: dict[str, JsonValue], location: Location
    ) -> Iterator[tuple[str, JsonValue]]:
        for key, element in schemas.items():
            if keyword == "dependencies" and isinstance(element, list):
                yield key, element
            else:
                yield key, self._copy(self._documents.enter(element, location))

    def _add_reference(self, copied: dict[str, JsonValue], keyword: str, location: Location) -> None:
        assert isinstance(location.value, dict)
        reference = location.value[keyword]
        if not isinstance(reference, str):
            raise DocumentError(f"{keyword}: {describe_json(reference)} is not valid here")
        target = self._documents.resolve(reference, location)
        if isinstance(target.value, Metaschema):
            uri = _URIS[target.value.draft]
        elif target.value is self._documents.root.value:
            uri = "#"
        else:
            if id(target.value) not in self._numbers:
                self._numbers[id(target.value)] = len(self._numbers)
                self._pending.append(target)
            uri = f"{self._prefix}{self._numbers[id(target.value)]}"
        if "$ref" in copied:
            copied.setdefault("allOf", []).append({"$ref": uri})
        else:
            copied["$ref"] = uri


def iter_subschemas(node: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    """Iterate over the schemas directly within a schema of a bundle, with their keywords."""
    if not isinstance(node, dict):
        return
    for keyword, element in node.items():
        if keyword in _LIST_KEYWORDS and isinstance(element, list):
            yield from ((keyword, each) for each in element)
        elif keyword in _MAP_KEYWORDS:
            yield from ((keyword, each) for each in element.values() if not isinstance(each, list))
        elif keyword in _SCHEMA_KEYWORDS:
            yield keyword, element
