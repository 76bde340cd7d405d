"""Avro schemas in the registry: parsing, normal form and compatibility."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from chronik.formats.avro.schema import AvroRecord, AvroSchemaError, Type, break_cycles, iter_types, parse_schema
from chronik.formats.avro.schema_text import format_json, format_schema, normalize_schema
from chronik.registry.avro_compatibility import find_incompatibilities
from chronik.registry.schema import InvalidSchemaError, ResolvedReference


def parse(text: str, references: Sequence[ResolvedReference], *, is_new: bool = True) -> AvroSchema:
    """Parse an Avro schema.

    Args:
        text: The schema in JSON.
        references: The schemas that it refers to, each before the schemas that refer to it.
        is_new: Whether the rules for new schemas apply: names are ASCII, and default values are valid.

    Raises:
        InvalidSchemaError: The schema is invalid or too complex.
    """
    texts = [reference.text for reference in references]
    records: list[AvroRecord] = []
    try:
        root, reference_types = parse_schema(text, texts, is_new=is_new)
        records += _find_records((root, *reference_types))
        known_names = [reference.full_name for reference in reference_types]
        canonical_text = format_schema(root, known_names)
    except AvroSchemaError as error:
        break_cycles(records)
        raise InvalidSchemaError(str(error)) from None
    return AvroSchema(root, known_names, canonical_text, tuple(references), records, is_new=is_new)


def _find_records(types: Iterable[Type]) -> Iterable[AvroRecord]:
    found = {id(each): each for type_ in types for each in iter_types(type_)}
    return (each for each in found.values() if isinstance(each, AvroRecord))


class AvroSchema:
    """A parsed Avro schema. See `Schema`."""

    def __init__(
        self,
        root: Type,
        known_names: Sequence[str],
        canonical_text: str,
        references: tuple[ResolvedReference, ...],
        records: Sequence[AvroRecord],
        *,
        is_new: bool,
    ) -> None:
        self.root = root
        self._records = records
        self._known_names = known_names
        self._canonical_text = canonical_text
        self._references = references
        self._is_new = is_new

    def __del__(self) -> None:
        break_cycles(self._records)

    @property
    def canonical_text(self) -> str:
        """The schema as Avro's Java library writes it: types of references are written as names."""
        return self._canonical_text

    def normalize(self) -> str:
        """Return the text in Confluent's normal form."""
        return self._normal_text

    @cached_property
    def _normal_text(self) -> str:
        normalized = format_json(normalize_schema(self.root, self._known_names))
        return parse(normalized, self._references, is_new=self._is_new).canonical_text

    def find_incompatibilities(self, writer: AvroSchema) -> list[str]:
        """Return why this schema cannot read all data written with `writer`, in the wording of Confluent's registry.

        Raises:
            InvalidSchemaError: The comparison would take too many steps.
        """
        try:
            return find_incompatibilities(self.root, writer.root)
        except AvroSchemaError as error:
            raise InvalidSchemaError(str(error)) from None
