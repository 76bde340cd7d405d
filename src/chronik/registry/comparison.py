"""Comparison of a schema with earlier versions of a subject: is it the same, and is it compatible?

Messages are those of Confluent's registry.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from chronik.registry.entities import Config, Metadata, RuleSet
from chronik.registry.errors import RegistryTimeoutError
from chronik.registry.parser import SchemaParser, UnparsedSchema
from chronik.registry.properties import get_version_property, remove_version_property
from chronik.registry.schema import (
    FormattableSchema,
    InvalidSchemaError,
    Schema,
    SchemaType,
)
from chronik.registry.settings import CompatibilityLevel, get_level

SCHEMA_CHARACTERS_SHOWN: Final = 10 * 1024
"""The maximum characters of an earlier schema in the messages about an incompatible one."""

RESERVED_PROPERTY: Final = "confluent:reserved"
"""The metadata property that lists the names of fields that a schema must not have."""

RESTRICTED_PREFIX: Final = "$$"
"""The prefix of JSON Schema properties that the validation of fields rejects."""

RESOLVED_FORMAT: Final = "resolved"
"""The format of Avro schemas that contain the types to which they refer."""

DIFFERENT_TYPE: Final = "Incompatible because of different schema type"

_PLACEHOLDER: Final = re.compile("%[s%]")


# Modules of formats are imported when they are used: most nodes need one of them, or none.


class ComparedVersion(NamedTuple):
    """A version of a subject, or a new schema, with what is compared."""

    number: int
    schema: UnparsedSchema
    direct_references: tuple[tuple[str, str, int], ...]
    metadata: Metadata | None
    rule_set: RuleSet | None


def check_deadline(deadline: float) -> None:
    """Check the time before a comparison.

    Raises:
        RegistryTimeoutError: It is later than `deadline`, a time of `time.monotonic`.
    """
    if time.monotonic() > deadline:
        raise RegistryTimeoutError("Comparing the schema with the versions of the subject takes too long")


# --- equality ---


def is_same_schema(parser: SchemaParser, new: ComparedVersion, known: ComparedVersion) -> bool:
    """Return whether a new schema is the one of a known version.

    They may differ in the version number in the metadata of one of them. An Avro schema without references may contain
    the schemas to which the known one refers.

    Raises:
        InvalidSchemaError: The known schema is not valid any more.
    """
    if new.schema.type is not known.schema.type or not _has_same_properties(new, known):
        return False
    if new.direct_references == known.direct_references:
        return _has_same_text(new.schema.type, new.schema.text, known.schema.text)
    if new.direct_references:
        return False
    if new.schema.type is not SchemaType.AVRO:
        return new.schema.text == known.schema.text
    resolved = format_parsed_schema(SchemaType.AVRO, parser.parse(known.schema, is_new=False), RESOLVED_FORMAT)
    return _has_same_text(SchemaType.AVRO, new.schema.text, resolved)


def _has_same_properties(new: ComparedVersion, known: ComparedVersion) -> bool:
    if new.rule_set != known.rule_set:
        return False
    new_number, known_number = _parse_version_property(new.metadata), _parse_version_property(known.metadata)
    if (new_number is None) == (known_number is None):
        return new.metadata == known.metadata
    if known_number is None and new_number != known.number:
        return False
    return _without_version(new.metadata) == _without_version(known.metadata)


def _parse_version_property(metadata: Metadata | None) -> int | None:
    text = get_version_property(metadata) or ""
    digits = text.removeprefix("-").removeprefix("+")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 10 else None


def _without_version(metadata: Metadata | None) -> Metadata:
    return remove_version_property(metadata) or Metadata()


def _has_same_text(schema_type: SchemaType, left: str, right: str) -> bool:
    """Return whether two canonical texts are of the same schema. In Avro, the order of custom properties is ignored."""
    if left == right:
        return True
    return schema_type is SchemaType.AVRO and len(left) == len(right) and bool(json.loads(left) == json.loads(right))


# --- compatibility ---


def find_field_errors(config: Config, parsed: Schema, new: ComparedVersion, latest: Metadata | None) -> list[str]:
    """Return why the fields of a new schema are not allowed, if the config demands that they are validated.

    Args:
        config: The effective config of the subject.
        parsed: The new schema, parsed.
        new: The new schema.
        latest: The metadata of the latest version of the subject.
    """
    if not config.validate_fields:
        return []
    reserved = _list_reserved_fields(new.metadata)
    removed = [field for field in _list_reserved_fields(latest) if field not in reserved]
    messages = [
        f"The new schema has reserved field {field} removed from its metadata which is present in the old schema's "
        "metadata."
        for field in removed
    ]
    fields = set(list_top_level_fields(parsed, new.schema)) if reserved else set()
    return messages + [
        f"The new schema has field that conflicts with the reserved field {field}."
        for field in reserved
        if field in fields
    ]


def _list_reserved_fields(metadata: Metadata | None) -> list[str]:
    text = (metadata.properties or {}).get(RESERVED_PROPERTY, "") if metadata is not None else ""
    return list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def list_top_level_fields(parsed: Schema, schema: UnparsedSchema) -> list[str]:
    """Return the names of the fields of a record, an object or a file's messages."""
    if schema.type is SchemaType.AVRO:
        return _list_record_fields(parsed)
    if schema.type is SchemaType.PROTOBUF:
        return _list_message_fields(parsed)
    if schema.type is SchemaType.JSON:
        document: Any = json.loads(schema.text)
        properties = document.get("properties") if isinstance(document, dict) else None
        return list(properties) if isinstance(properties, dict) else []
    return []


def _list_record_fields(parsed: Schema) -> list[str]:
    from chronik.formats.avro.schema import AvroRecord
    from chronik.registry.avro import AvroSchema

    assert isinstance(parsed, AvroSchema)
    return [field.name for field in parsed.root.fields] if isinstance(parsed.root, AvroRecord) else []


def _list_message_fields(parsed: Schema) -> list[str]:
    from chronik.formats.protobuf.syntax import Message, iter_fields
    from chronik.registry.protobuf import ProtobufSchema

    assert isinstance(parsed, ProtobufSchema)
    messages = [each for each in parsed.file.types if isinstance(each, Message)]
    return [field.name for message in messages for field, _ in iter_fields(message)]


def check_field_names(parsed: Schema, schema: UnparsedSchema) -> None:
    """Check the names of the fields of a new schema, as configs with `validateFields` demand.

    Raises:
        InvalidSchemaError: A name is not allowed.
    """
    if schema.type is SchemaType.JSON:
        for name in list_top_level_fields(parsed, schema):
            if name.startswith(RESTRICTED_PREFIX):
                raise InvalidSchemaError(
                    f"#/properties/{name}: Field names cannot start with {RESTRICTED_PREFIX} prefix"
                )


def select_group(
    config: Config, metadata: Metadata | None, versions: Sequence[ComparedVersion]
) -> list[ComparedVersion]:
    """Return the versions with which a new schema is compared: those of its compatibility group, if any."""
    group = config.compatibility_group
    if group is None:
        return list(versions)
    wanted = (metadata or Metadata()).properties or {}
    return [each for each in versions if _get_property(each.metadata, group) == wanted.get(group)]


def _get_property(metadata: Metadata | None, name: str) -> str | None:
    return None if metadata is None else (metadata.properties or {}).get(name)


def find_incompatibilities(
    parser: SchemaParser,
    level: CompatibilityLevel,
    parsed: Schema,
    schema_type: SchemaType,
    versions: Iterable[ComparedVersion],
    deadline: float,
) -> list[str]:
    """Return why a schema is incompatible with the first of some versions that it is incompatible with.

    Args:
        parser: The parser for the versions.
        level: The compatibility level.
        parsed: The new schema, parsed.
        schema_type: The type of the new schema.
        versions: The versions, the latest first. A level that is not transitive takes only the first.
        deadline: The time of `time.monotonic` until which comparisons may start.

    Raises:
        InvalidSchemaError: A version is not valid any more, or a comparison takes too many steps.
        RegistryTimeoutError: The comparisons take too long.
    """
    for version in versions:
        check_deadline(deadline)
        if schema_type is not version.schema.type:
            messages = [DIFFERENT_TYPE]
        else:
            messages = _compare(level, parsed, parser.parse(version.schema, is_new=False), version)
        if messages or not level.is_transitive:
            return messages
    return []


def _compare(level: CompatibilityLevel, new: Schema, old: Schema, version: ComparedVersion) -> list[str]:
    messages: list[str] = []
    if level in (CompatibilityLevel.FORWARD, CompatibilityLevel.FORWARD_TRANSITIVE):
        messages = _name_schemas(old.find_incompatibilities(new), "old", "new")
    elif level in (CompatibilityLevel.BACKWARD, CompatibilityLevel.BACKWARD_TRANSITIVE):
        messages = _name_schemas(new.find_incompatibilities(old), "new", "old")
    elif level in (CompatibilityLevel.FULL, CompatibilityLevel.FULL_TRANSITIVE):
        messages = _name_schemas(old.find_incompatibilities(new), "old", "new")
        backward = _name_schemas(new.find_incompatibilities(old), "new", "old")
        if not backward:
            return messages
        messages += backward
    return [*messages, *_describe_version(version)] if messages else []


def _name_schemas(messages: list[str], reader: str, writer: str) -> list[str]:
    """Replace the first `%s` of each message by the reader's name and the others by the writer's, as Java does."""
    return [_insert_names(message, reader, writer) for message in messages]


def _insert_names(message: str, reader: str, writer: str) -> str:
    names = [writer, reader]
    return _PLACEHOLDER.sub(lambda found: "%" if found[0] == "%%" else names.pop() if names else writer, message)


def _describe_version(version: ComparedVersion) -> list[str]:
    text = version.schema.text
    shown = (
        f"'{text}'" if len(text) <= SCHEMA_CHARACTERS_SHOWN else f"<truncated> '{text[:SCHEMA_CHARACTERS_SHOWN]}...'"
    )
    return [f"{{oldSchemaVersion: {version.number}}}", f"{{oldSchema: {shown}}}"]


def describe_check(config: Config) -> str:
    """Return the last message about an incompatible schema: the config with which it was checked."""
    validates = "true" if config.validate_fields else "false"
    return f"{{validateFields: '{validates}', compatibility: '{get_level(config)}'}}"


# --- formats ---


def format_parsed_schema(schema_type: SchemaType, parsed: Schema, output_format: str) -> str:
    """Return a schema in a format of its type. Unknown formats return the canonical text, as in Confluent's registry.

    Raises:
        InvalidSchemaError: The schema would be too large.
    """
    if schema_type is SchemaType.AVRO and output_format == RESOLVED_FORMAT:
        return _resolve_avro_schema(parsed)
    return parsed.render(output_format) if isinstance(parsed, FormattableSchema) else parsed.canonical_text


def _resolve_avro_schema(parsed: Schema) -> str:
    from chronik.formats.avro.schema import AvroSchemaError
    from chronik.formats.avro.schema_text import format_schema
    from chronik.registry.avro import AvroSchema

    assert isinstance(parsed, AvroSchema)
    try:
        return format_schema(parsed.root)
    except AvroSchemaError as error:
        raise InvalidSchemaError(str(error)) from None
