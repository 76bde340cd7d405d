"""Validation of the schema ids in produced records against the schema registry in the metadata image.

The ids must be registered under a subject that the topic's subject name strategy permits. As in Confluent Server, the
subject is in the default context, but may have an alias: then the ids are those of the alias, also in another context.
Record name strategies need the names of the record types in a schema. They are cached, and a thread extracts them from
large schemas, which takes milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from typing import Final
from uuid import UUID

from chronik.broker.requests.produced_records import ProduceRules, SubjectNameStrategy
from chronik.metadata.schemas import DEFAULT_CONTEXT, SchemaTable, StoredSchema, qualify_reference, split_subject
from chronik.protocol.errors import InvalidRecord
from chronik.protocol.schema_ids import RECORD_ERRORS_MAX, SchemaKey, SchemaUsage

INLINE_CHARACTERS_MAX: Final = 256 * 1024
"""Maximum characters of schemas whose record names are extracted on the event loop for a batch, in about 1 ms."""

CACHED_CHARACTERS_MAX: Final = 8 * 1024 * 1024
"""Maximum characters of record names in the cache. Most schemas have one name of about 50 characters."""

CACHED_SCHEMAS_MAX: Final = 10_000
"""Maximum number of schemas whose record names are in the cache."""

LOOKUPS_MAX: Final = 20_000
"""Maximum number of subjects that are looked up for the keys or values of a batch, in about 20 ms. A schema has up to
1,000 record types, and a batch usually names one schema."""

SUBJECTS_SHOWN_MAX: Final = 3
"""Maximum number of subjects in an error message."""


class RecordNamesMissingError(Exception):
    """Records cannot be validated before a thread has extracted the record names of large schemas."""

    def __init__(self, schemas: Sequence[StoredSchema]) -> None:
        super().__init__()
        self.schemas = schemas


class RecordNameCache:
    """A cache of the names of the record types in schemas of the default context. It evicts the oldest entries."""

    def __init__(self, characters_max: int = CACHED_CHARACTERS_MAX, schemas_max: int = CACHED_SCHEMAS_MAX) -> None:
        self._names: dict[int, tuple[StoredSchema, frozenset[str]]] = {}
        self._characters = 0
        self._characters_max = characters_max
        self._schemas_max = schemas_max

    def find(self, schema: StoredSchema) -> frozenset[str] | None:
        """Return the names in a schema, or None if they are not cached."""
        cached = self._names.get(schema.id)
        # Comparing identities avoids hashing the text. An id has another schema only after a permanent deletion.
        return cached[1] if cached is not None and cached[0] is schema else None

    def add(self, schema: StoredSchema, names: frozenset[str]) -> None:
        """Store the names in a schema."""
        self._remove(schema.id)
        self._names[schema.id] = schema, names
        self._characters += _count_characters(names)
        while len(self._names) > 1 and (
            self._characters > self._characters_max or len(self._names) > self._schemas_max
        ):
            self._remove(next(iter(self._names)))

    def _remove(self, schema_id: int) -> None:
        if schema_id in self._names:
            self._characters -= _count_characters(self._names.pop(schema_id)[1])


class SchemaValidator:
    """Checks the schemas of produced records against the registry."""

    def __init__(self, names: RecordNameCache | None = None) -> None:
        self._names = RecordNameCache() if names is None else names

    def find_errors(
        self, usages: Iterable[SchemaUsage], rules: ProduceRules, topic: str, table: SchemaTable
    ) -> dict[int, str]:
        """Return why records have no valid schema, by the index of the record; empty if all records are valid.

        The first record that names an invalid schema stands for all that name it.

        Raises:
            RecordNamesMissingError: The caller must call `load_names` first.
            InvalidRecord: The schemas have too many record types.
        """
        errors: dict[int, str] = {}
        for usage in usages:
            if rules.key_schemas is not None:
                errors |= self._find_errors_of_part("key", usage.keys, rules.key_schemas, topic, table)
            if rules.value_schemas is not None:
                errors |= self._find_errors_of_part("value", usage.values, rules.value_schemas, topic, table)
        return dict(sorted(errors.items())[:RECORD_ERRORS_MAX])

    async def load_names(self, schemas: Sequence[StoredSchema]) -> None:
        """Extract the names of record types from schemas in a thread."""
        for schema, names in zip(schemas, await asyncio.to_thread(_extract_names, schemas), strict=True):
            self._names.add(schema, names)

    def _find_errors_of_part(
        self, part: str, keys: dict[SchemaKey, int], strategy: SubjectNameStrategy, topic: str, table: SchemaTable
    ) -> dict[int, str]:
        topic_subject, context = f"{topic}-{part}", DEFAULT_CONTEXT
        if strategy is SubjectNameStrategy.TOPIC:
            topic_subject = _resolve_alias(topic_subject, table)
            context, _ = split_subject(topic_subject)
        found = {key: list(_iter_schemas(key, context, table)) for key in keys}
        names: dict[int, frozenset[str]] = {}
        if strategy is not SubjectNameStrategy.TOPIC:
            names = self._get_names(schema for schemas in found.values() for schema in schemas)
        prefix = f"{topic}-" if strategy is SubjectNameStrategy.TOPIC_RECORD else ""
        lookups, errors = _LookupBudget(), dict[int, str]()
        for key, index in keys.items():
            for schema in found[key]:
                if strategy is SubjectNameStrategy.TOPIC:
                    is_valid = table.has_version_with_schema(topic_subject, schema.id)
                else:
                    is_valid = _has_record_subject(schema, names[schema.id], prefix, table, lookups)
                if is_valid:
                    break
            else:
                subjects = [topic_subject] if found[key] else []
                if found[key] and strategy is not SubjectNameStrategy.TOPIC:
                    first = nsmallest(SUBJECTS_SHOWN_MAX + 1, names[found[key][-1].id])
                    subjects = [_resolve_alias(prefix + name, table) for name in first]
                errors[index] = _describe_error(part, key, subjects, context, is_known=bool(found[key]))
                if len(errors) == RECORD_ERRORS_MAX:
                    break
        return errors

    def _get_names(self, schemas: Iterable[StoredSchema]) -> dict[int, frozenset[str]]:
        """Return the names of record types by schema id. Extract missing ones if that takes little time."""
        names, missing = {}, []
        for schema in schemas:
            known = self._names.find(schema)
            if known is None:
                missing.append(schema)
            else:
                names[schema.id] = known
        if sum(len(schema.text) for schema in missing) > INLINE_CHARACTERS_MAX:
            raise RecordNamesMissingError(missing)
        for schema, extracted in zip(missing, _extract_names(missing) if missing else (), strict=True):
            self._names.add(schema, extracted)
            names[schema.id] = extracted
        return names


class _LookupBudget:
    """The number of subjects that may still be looked up for a batch."""

    def __init__(self) -> None:
        self._left = LOOKUPS_MAX

    def charge(self, count: int) -> None:
        """Count lookups; raise InvalidRecord if the budget is exceeded."""
        self._left -= count
        if self._left < 0:
            raise InvalidRecord("the schemas of the batch have too many record types or subjects: send smaller batches")


def _has_record_subject(
    schema: StoredSchema, names: frozenset[str], prefix: str, table: SchemaTable, lookups: _LookupBudget
) -> bool:
    """Return whether a schema of the default context is registered under the name of one of its record types.

    Raises:
        InvalidRecord: There are too many names and subjects.
    """
    versions = table.versions_with_schema((DEFAULT_CONTEXT, schema.id))
    if len(versions) <= len(names):
        lookups.charge(len(versions))
        for subject, numbers in versions.items():
            has_name = subject.startswith(prefix) and subject[len(prefix) :] in names
            if has_name and _resolve_alias(subject, table) == subject and table.has_live_version(subject, numbers):
                return True
    lookups.charge(len(names))
    subjects = (_resolve_alias(prefix + name, table) for name in names)
    # An id has another meaning in another context.
    return any(
        split_subject(subject)[0] == DEFAULT_CONTEXT and table.has_version_with_schema(subject, schema.id)
        for subject in subjects
    )


def _resolve_alias(subject: str, table: SchemaTable) -> str:
    """Return the alias of a subject, or the subject if it has none."""
    settings = table.settings.get(subject)
    if settings is None or not settings.config:
        return subject
    from chronik.registry.settings import find_config  # few topics have subjects with a config

    config = find_config(table, subject)
    assert config is not None, "the subject has a config"
    return qualify_reference(split_subject(subject)[0], config.alias) if config.alias else subject


def _iter_schemas(key: SchemaKey, context: str, table: SchemaTable) -> Iterator[StoredSchema]:
    """Return an iterator over the schemas with an id or a GUID. Several schemas may have the same GUID."""
    ids = table.find_ids_by_guid(context, key.bytes) if isinstance(key, UUID) else (key,)
    found = (table.schemas.get((context, schema_id)) for schema_id in ids)
    return (schema for schema in found if schema is not None)


def _describe_error(part: str, key: SchemaKey, subjects: Sequence[str], context: str, *, is_known: bool) -> str:
    schema = f"schema {'GUID' if isinstance(key, UUID) else 'id'} {key} of the {part}"
    if not is_known:
        return f"{schema} is not registered{'' if context == DEFAULT_CONTEXT else f' in context {context!r}'}"
    if not subjects:
        return f"{schema} is that of a schema without a record name, which the subject name strategy requires"
    shown = " or ".join(map(repr, subjects[:SUBJECTS_SHOWN_MAX]))
    return f"{schema} is not registered under subject {shown}{', …' if len(subjects) > SUBJECTS_SHOWN_MAX else ''}"


def _extract_names(schemas: Iterable[StoredSchema]) -> list[frozenset[str]]:
    # Imported when the first batch needs it: few topics have a record name strategy.
    from chronik.formats.codec import ValueFormat
    from chronik.formats.record_names import extract_record_names

    formats = {1: ValueFormat.AVRO, 2: ValueFormat.JSON_SCHEMA, 3: ValueFormat.PROTOBUF}
    return [extract_record_names(formats[schema.schema_type], schema.text) for schema in schemas]


def _count_characters(names: Iterable[str]) -> int:
    return sum(map(len, names))
