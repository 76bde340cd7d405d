"""Compatibility of Avro schemas, by the rules of Java's `org.apache.avro.SchemaCompatibility`.

The messages, their order and their locations are those of Confluent's Schema Registry. As in Java, results of pairs of
types are memoized together with the location of the first comparison, and locations in the branches of a union are
relative to the branch.
"""

from __future__ import annotations

from typing import Final

from chronik.formats.avro.schema import (
    Array,
    AvroField,
    AvroRecord,
    AvroSchemaError,
    Enum,
    Fixed,
    Kind,
    Map,
    NamedType,
    Steps,
    Type,
    Union,
)
from chronik.formats.avro.schema_text import format_schema

PAIRS_MAX: Final = 100_000
"""Maximum pairs of types that are compared, each of which takes about 2 µs and 400 bytes."""

FIELDS_MAX: Final = 500_000
"""Maximum fields, aliases and enum symbols that are compared in these pairs."""

DEPTH_MAX: Final = 150
"""Maximum nesting of comparisons, each of which takes up to four of Python's stack frames. Types that refer to each
other by name may be nested more deeply than their text."""

MESSAGES_MAX: Final = 1000
"""Maximum incompatibilities of a pair of types. Java repeats those of a type for each of its uses: their number
may grow exponentially."""

MESSAGES_CHARACTERS_MAX: Final = 1_000_000
"""Maximum characters of all incompatibilities of two schemas."""

DETAILS_CHARACTERS_MAX: Final = 10_000
"""Maximum characters of names in an incompatibility. A message may list all symbols of an enum, and be repeated for
each of its uses."""

DETAILS_CHARACTERS_MIN: Final = 100
"""Maximum characters of names in further incompatibilities, after those of MESSAGES_CHARACTERS_MAX characters. Many are
found and discarded, because they are those of the wrong branch of a union."""

_PROMOTIONS: Final = {
    Kind.LONG: (Kind.INT,),
    Kind.FLOAT: (Kind.INT, Kind.LONG),
    Kind.DOUBLE: (Kind.INT, Kind.LONG, Kind.FLOAT),
    Kind.BYTES: (Kind.STRING,),
    Kind.STRING: (Kind.BYTES,),
}
"""The kinds that a reader of each primitive kind can read besides its own."""

_DESCRIPTIONS: Final = {
    "FIXED_SIZE_MISMATCH": (
        "The size of FIXED type field at path '{path}' in the %s schema does not match with the %s schema"
    ),
    "TYPE_MISMATCH": "The type (path '{path}') of a field in the %s schema does not match with the %s schema",
    "NAME_MISMATCH": "The name of the schema has changed (path '{path}')",
    "MISSING_ENUM_SYMBOLS": ("The %s schema is missing enum symbols '{details}' at path '{path}' in the %s schema"),
    "MISSING_UNION_BRANCH": ("The %s schema is missing a type inside a union field at path '{path}' in the %s schema"),
    "READER_FIELD_MISSING_DEFAULT_VALUE": (
        "The field '{details}' at path '{path}' in the %s schema has no default value and is missing in the %s schema"
    ),
}
"""Descriptions by type of error. The registry replaces `%s` by "new" and "old", in the order of the check."""


def find_incompatibilities(reader: Type, writer: Type) -> list[str]:
    """Return the reasons why data written with one schema cannot be read with another; empty if it always can.

    Raises:
        AvroSchemaError: The schemas are too complex.
    """
    try:
        return _limit_characters(_Checker().check(reader, writer, []))
    except _AmbiguousFieldError as error:
        return [f"Unexpected exception during compatibility check: {error}"]


def _limit_characters(messages: list[str]) -> list[str]:
    characters = 0
    for count, message in enumerate(messages):
        characters += len(message)
        if characters > MESSAGES_CHARACTERS_MAX:
            return messages[:count]
    return messages


class _AmbiguousFieldError(Exception):
    """A reader's field has a name and aliases that match several fields of the writer."""


class _Checker:
    def __init__(self) -> None:
        self._results: dict[tuple[int, int], list[str] | None] = {}
        """The incompatibilities of each pair of types, or None while the pair is being compared."""
        self._pairs = Steps(PAIRS_MAX)
        self._fields = Steps(FIELDS_MAX)
        self._depth = 0
        self._characters_left = MESSAGES_CHARACTERS_MAX

    def check(self, reader: Type, writer: Type, path: list[str]) -> list[str]:
        """Return the incompatibilities of a pair of types. A pair that is still being compared counts as compatible."""
        pair = (id(reader), id(writer))
        if pair in self._results:
            return self._results[pair] or []
        self._pairs.take()
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise AvroSchemaError("The schemas are too complex to compare: their types are nested too deeply")
        self._results[pair] = None
        found = self._compare(reader, writer, path)
        del found[MESSAGES_MAX:]
        self._results[pair] = found
        self._depth -= 1
        return found

    def _compare(self, reader: Type, writer: Type, path: list[str]) -> list[str]:
        if isinstance(writer, Union):
            return self._compare_writer_union(reader, writer, path)
        if isinstance(reader, Union):
            if any(not self.check(branch, writer, []) for branch in reader.branches):
                return []
            return [self._describe("MISSING_UNION_BRANCH", path, _name_missing_branch(writer))]
        if reader.kind is not writer.kind:
            if writer.kind in _PROMOTIONS.get(reader.kind, ()):
                return []
            kinds = f"reader type: {reader.kind.upper()} not compatible with writer type: {writer.kind.upper()}"
            return [self._describe("TYPE_MISMATCH", path, kinds)]
        if isinstance(reader, Array) and isinstance(writer, Array):
            return list(self.check(reader.items, writer.items, [*path, "items"]))
        if isinstance(reader, Map) and isinstance(writer, Map):
            return list(self.check(reader.values, writer.values, [*path, "values"]))
        if isinstance(reader, NamedType) and isinstance(writer, NamedType):
            return self._compare_named(reader, writer, path)
        return []

    def _compare_writer_union(self, reader: Type, writer: Union, path: list[str]) -> list[str]:
        found: list[str] = []
        for index, branch in enumerate(writer.branches):
            branch_path = [*path, str(index)]
            if not isinstance(reader, Union):
                found += self.check(reader, branch, branch_path)
            elif self.check(reader, branch, []):
                found.append(self._describe("MISSING_UNION_BRANCH", branch_path, _name_missing_branch(branch)))
        return found

    def _compare_named(self, reader: NamedType, writer: NamedType, path: list[str]) -> list[str]:
        found = []
        if reader.name.simple != writer.name.simple and writer.full_name not in reader.alias_names:
            found.append(self._describe("NAME_MISMATCH", [*path, "name"], f"expected: {writer.full_name}"))
        if isinstance(reader, Fixed) and isinstance(writer, Fixed):
            if reader.size != writer.size:
                sizes = f"expected: {writer.size}, found: {reader.size}"
                found.append(self._describe("FIXED_SIZE_MISMATCH", [*path, "size"], sizes))
        elif isinstance(reader, Enum) and isinstance(writer, Enum):
            self._fields.take(len(reader.symbols) + len(writer.symbols))
            missing = set(writer.symbols) - set(reader.symbols)
            if missing and reader.default is None:
                found.append(
                    self._describe("MISSING_ENUM_SYMBOLS", [*path, "symbols"], f"[{', '.join(sorted(missing))}]")
                )
        elif isinstance(reader, AvroRecord) and isinstance(writer, AvroRecord):
            self._fields.take(sum(1 + len(field.aliases) for field in reader.fields))
            for index, field in enumerate(reader.fields):
                found += self._compare_field(field, index, writer, [*path, "fields", str(index)])
        return found

    def _compare_field(self, field: AvroField, index: int, writer: AvroRecord, path: list[str]) -> list[str]:
        written = [writer.by_name[name] for name in (field.name, *field.aliases) if name in writer.by_name]
        if len(written) > 1:
            raise _AmbiguousFieldError(
                f"Reader record field {field.name} type:{field.type.kind.upper()} pos:{index} matches multiple fields "
                f"in writer record schema {format_schema(writer)}"
            )
        if written:
            return self.check(field.type, written[0].type, [*path, "type"])
        if field.has_default:
            return []
        if isinstance(field.type, Enum) and field.type.default is not None:
            return self.check(field.type, writer, [*path, "type"])
        return [self._describe("READER_FIELD_MISSING_DEFAULT_VALUE", path, field.name)]

    def _describe(self, error_type: str, path: list[str], details: str) -> str:
        shown = DETAILS_CHARACTERS_MAX if self._characters_left > 0 else DETAILS_CHARACTERS_MIN
        if len(details) > shown:
            details = f"{details[:shown]}…"
        self._characters_left -= len(details)
        location = "/" + "/".join(token.replace("~", "~0").replace("/", "~1") for token in path)
        description = _DESCRIPTIONS[error_type].format(path=location, details=details)
        return f"{{errorType:'{error_type}', description:'{description}', additionalInfo:'{details}'}}"


def _name_missing_branch(branch: Type) -> str:
    return f"reader union lacking writer type: {branch.kind.upper()}"
