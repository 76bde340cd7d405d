"""The interface of a schema, whatever its format.

Each format has a module or package with a function `parse(text, references)`, which returns a `Schema`. Parsing and
comparing are pure, and their cost is bounded: clients send the schemas.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol, Self, runtime_checkable

from chronik.errors import ChronikError


class SchemaType(StrEnum):
    """A schema format, by the name that Confluent's REST API uses."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class InvalidSchemaError(ChronikError):
    """A schema that is not valid in its format, that refers to unknown schemas, or that is too complex."""


class ResolvedReference(NamedTuple):
    """A schema to which another schema refers by name, directly or through other references."""

    name: str
    """The name by which schemas refer to it: an Avro full name, a JSON Schema URI or a Protobuf import path."""
    text: str


class Schema(Protocol):
    """A parsed schema."""

    @property
    def canonical_text(self) -> str:
        """The schema as the registry stores and returns it. Texts that parse to the same schema may differ in it."""

    def normalize(self) -> str:
        """Return the text in normal form, which is equal for schemas that differ only in irrelevant details."""

    def find_incompatibilities(self, writer: Self) -> list[str]:
        """Return why this schema cannot read all data written with `writer`; empty if it can.

        Raises:
            InvalidSchemaError: The comparison would take too many steps.
        """


@runtime_checkable
class FormattableSchema(Protocol):
    """A parsed schema that can be rendered in formats other than its canonical text."""

    def render(self, output_format: str) -> str:
        """Return the schema in a format, or the canonical text if the format is unknown."""
