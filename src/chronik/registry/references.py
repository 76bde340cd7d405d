"""Resolution of a schema's references in the metadata image."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from chronik.limits import (
    SCHEMA_REFERENCE_DEPTH_MAX,
    SCHEMA_REFERENCE_NAME_CHARACTERS_MAX,
    SCHEMA_REFERENCE_STEPS_MAX,
    SCHEMA_REFERENCES_BYTES_MAX,
    SCHEMA_REFERENCES_MAX,
    SUBJECT_NAME_CHARACTERS_MAX,
)
from chronik.metadata.commands.schemas import ReferencedVersion
from chronik.metadata.schemas import SchemaTable, StoredSchema, StoredVersion, qualify_reference
from chronik.registry.entities import SchemaReference
from chronik.registry.schema import InvalidSchemaError, ResolvedReference

SubjectCheck = Callable[[str], None]
"""A check of a normalized name of a subject that raises AccessDeniedError unless the caller may read the subject."""

LATEST_VERSION = -1
"""The version number in a reference that stands for the latest version."""


class DirectReferences(NamedTuple):
    """The references in a request, with the latest version's number in place of -1."""

    versions: tuple[ReferencedVersion, ...]
    schema_ids: tuple[int, ...]


def resolve_direct_references(
    table: SchemaTable, context: str, references: Iterable[SchemaReference], *, include_deleted: bool
) -> DirectReferences:
    """Return the versions to which the references in a request refer.

    Raises:
        InvalidSchemaError: A referenced version does not exist, or there are too many references.
    """
    found = list(references)
    if len(found) > SCHEMA_REFERENCES_MAX:
        raise InvalidSchemaError(f"A schema may have at most {SCHEMA_REFERENCES_MAX} references, not {len(found)}")
    versions, schema_ids = [], []
    for reference in found:
        _check_length("name of a reference", reference.name, SCHEMA_REFERENCE_NAME_CHARACTERS_MAX)
        _check_length("subject of a reference", reference.subject, SUBJECT_NAME_CHARACTERS_MAX)
        subject = qualify_reference(context, reference.subject)
        version = _find_version(table, subject, reference.version, include_deleted=include_deleted)
        versions.append(ReferencedVersion(reference.name, reference.subject, version.number))
        schema_ids.append(version.schema_id)
    return DirectReferences(tuple(versions), tuple(schema_ids))


def _check_length(what: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise InvalidSchemaError(f"The {what} may have at most {limit} characters, not {len(text)}")


def _find_version(table: SchemaTable, subject: str, number: int, *, include_deleted: bool) -> StoredVersion:
    known = table.subjects.get(subject)
    version = None
    if known is not None:
        if number == LATEST_VERSION:
            version = known.live_versions[-1] if not known.is_deleted else None
        else:
            version = known.find_version(number)
    if version is None or (version.is_deleted and not include_deleted):
        raise InvalidSchemaError(f'No schema reference found for subject "{subject}" and version {number}')
    return version


def resolve_references(
    table: SchemaTable,
    context: str,
    references: Iterable[ReferencedVersion],
    *,
    include_deleted: bool = True,
    text_bytes: int = 0,
    require_read: SubjectCheck | None = None,
) -> tuple[ResolvedReference, ...]:
    """Return the texts of all schemas to which a schema refers, each before the schemas that refer to it.

    If several references have the same name, the first one counts, as in Confluent's registry.

    Args:
        table: The schemas.
        context: The context of the schema.
        references: The direct references of the schema.
        include_deleted: Whether soft-deleted versions are found.
        text_bytes: The size of the schema itself, which counts towards the limit.
        require_read: A check of each referenced subject, or None if no result shows the texts to a caller.

    Raises:
        InvalidSchemaError: A referenced version does not exist, or the references are too many, too deep or too large.
        AccessDeniedError: The check rejects a referenced subject.
    """
    resolver = _Resolver(table, include_deleted=include_deleted, text_bytes=text_bytes, require_read=require_read)
    resolver.visit(context, references, 1)
    return tuple(resolver.resolved)


class _Resolver:
    """A depth-first traversal of references."""

    def __init__(
        self, table: SchemaTable, *, include_deleted: bool, text_bytes: int, require_read: SubjectCheck | None
    ) -> None:
        self.resolved: list[ResolvedReference] = []
        self._table = table
        self._include_deleted = include_deleted
        self._bytes = text_bytes
        self._require_read = require_read
        self._steps = 0
        self._visited: set[str] = set()

    def visit(self, context: str, references: Iterable[ReferencedVersion], depth: int) -> None:
        for reference in references:
            self._steps += 1
            if self._steps > SCHEMA_REFERENCE_STEPS_MAX:
                raise InvalidSchemaError(f"All schemas have more than {SCHEMA_REFERENCE_STEPS_MAX} references together")
            if reference.name in self._visited:
                continue
            self._visited.add(reference.name)
            subject = qualify_reference(context, reference.subject)
            if self._require_read is not None:
                self._require_read(subject)
            schema = self._load(subject, reference.version)
            self._check_limits(schema, depth)
            self.visit(schema.context, schema.references, depth + 1)
            self.resolved.append(ResolvedReference(reference.name, schema.text))

    def _load(self, subject: str, number: int) -> StoredSchema:
        version = _find_version(self._table, subject, number, include_deleted=self._include_deleted)
        return self._table.schemas[self._table.subjects[subject].context, version.schema_id]

    def _check_limits(self, schema: StoredSchema, depth: int) -> None:
        self._bytes += schema.size
        if len(self._visited) > SCHEMA_REFERENCES_MAX:
            raise InvalidSchemaError(f"A schema may refer to at most {SCHEMA_REFERENCES_MAX} schemas")
        if depth > SCHEMA_REFERENCE_DEPTH_MAX:
            raise InvalidSchemaError(f"References are nested more than {SCHEMA_REFERENCE_DEPTH_MAX} levels deep")
        if self._bytes > SCHEMA_REFERENCES_BYTES_MAX:
            raise InvalidSchemaError(
                f"A schema and the schemas to which it refers may have at most {SCHEMA_REFERENCES_BYTES_MAX} bytes"
            )
