"""Parsing of requested schemas, and their comparison with the versions of a subject, in threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Final

from chronik.limits import SCHEMA_COMPARISON_SECONDS_MAX
from chronik.metadata.commands.schemas import UNASSIGNED
from chronik.metadata.schemas import SchemaTable, StoredSchema, StoredVersion
from chronik.registry.comparison import (
    RESOLVED_FORMAT,
    ComparedVersion,
    check_deadline,
    describe_check,
    find_field_errors,
    find_incompatibilities,
    format_parsed_schema,
    is_same_schema,
    select_group,
)
from chronik.registry.listing import ListSlices
from chronik.registry.parser import TYPES_BY_NUMBER, SchemaParser, SchemaThreads, UnparsedSchema
from chronik.registry.properties import decode_properties
from chronik.registry.proposals import RegistryStore, StateChangedError
from chronik.registry.references import SubjectCheck
from chronik.registry.registration import (
    PreparedSchema,
    SchemaDraft,
    SubjectState,
    describe_invalid_schema,
    load_compared_version,
    load_unparsed,
    parse_draft,
    resolve_draft,
)
from chronik.registry.schema import InvalidSchemaError, Schema, SchemaType
from chronik.registry.settings import CompatibilityLevel, get_level

COMPARED_AT_ONCE: Final = 50
"""The number of versions that are loaded on the event loop before they are compared in a thread."""


class SchemaMatcher:
    """Parses and compares schemas in threads, with a consistent view of a subject.

    Methods that take the state of a subject raise `StateChangedError` if it has changed since it was loaded.
    """

    def __init__(self, store: RegistryStore) -> None:
        self._store = store
        self._parser = SchemaParser()
        self._threads = SchemaThreads()

    async def close(self) -> None:
        """Stop the threads."""
        await self._threads.close()

    @property
    def _table(self) -> SchemaTable:
        return self._store.table

    async def prepare(
        self, state: SubjectState, draft: SchemaDraft, *, is_new: bool, normalize: bool
    ) -> PreparedSchema:
        """Parse a schema in a thread.

        Raises:
            UnprocessableSchemaError: The schema is invalid.
            StateChangedError: The subject or its settings have changed since `state` was loaded.
        """
        resolved = resolve_draft(self._table, state.context, draft, is_new=is_new)
        prepared = await self._threads.run(
            parse_draft, self._parser, resolved, state.config, state.mode, normalize=normalize
        )
        self._check_unchanged(state)
        return prepared

    def _check_unchanged(self, state: SubjectState) -> None:
        known = self._table.subjects.get(state.name)
        revision = 0 if known is None else known.revision
        if revision != state.revision or self._table.settings_revisions(state.name) != state.settings_revisions:
            raise StateChangedError

    def find_by_content(self, state: SubjectState, prepared: PreparedSchema) -> StoredSchema | None:
        """Return the schema of the subject's context with the same content, or None."""
        return self._table.find_by_content(state.context, prepared.guid, prepared.content)

    def find_version_of(
        self, state: SubjectState, schema: StoredSchema | None, *, deleted: bool
    ) -> StoredVersion | None:
        """Return the latest version of a subject that has a schema, or None."""
        if schema is None or state.subject is None:
            return None
        numbers = self._table.versions_with_schema(schema.key).get(state.name, ())
        found = [state.subject.find_version(number) for number in sorted(numbers, reverse=True)]
        return next((each for each in found if each is not None and (deleted or not each.is_deleted)), None)

    async def find_prepared(
        self, state: SubjectState, prepared: PreparedSchema, *, deleted: bool
    ) -> StoredVersion | None:
        """Return the latest version of a subject that has a schema, or None."""
        if state.subject is None:
            return None
        known = self.find_version_of(state, self.find_by_content(state, prepared), deleted=deleted)
        versions = state.subject.versions if deleted else state.live_versions
        return known or await self.find_same(state, prepared, versions)

    async def find_same(
        self,
        state: SubjectState,
        prepared: PreparedSchema,
        versions: Sequence[StoredVersion],
        schema_id: int = UNASSIGNED,
    ) -> StoredVersion | None:
        """Return the latest of some versions that has the same schema, apart from details: see `is_same_schema`.

        If a schema id is given, versions with another id do not count.
        """
        schemas = self._table.schemas
        candidates = [
            version
            for version in reversed(versions)
            if schema_id in (UNASSIGNED, version.schema_id)
            and prepared.may_equal(schemas[state.context, version.schema_id])
        ]
        with_references = prepared.draft.type is SchemaType.AVRO and not prepared.direct.versions
        deadline = time.monotonic() + SCHEMA_COMPARISON_SECONDS_MAX
        for chunk in _split(candidates):
            compared = await self._load_versions(state, chunk, with_references=with_references)
            position = await self._threads.run(_find_first_same, self._parser, prepared.compared, compared, deadline)
            self._check_unchanged(state)
            if position is not None:
                return chunk[position]
        return None

    async def find_incompatibilities(
        self, state: SubjectState, prepared: PreparedSchema, versions: Sequence[StoredVersion]
    ) -> list[str]:
        """Return why a schema is incompatible with versions of a subject, in ascending order, under its config."""
        config, new = state.config, prepared.compared
        latest = versions[-1:]
        metadata = None
        if latest and config.validate_fields:
            metadata = decode_properties(self._table.schemas[state.context, latest[0].schema_id].properties).metadata
        messages = await self._threads.run(find_field_errors, config, prepared.parsed, new, metadata)
        level = get_level(config)
        if level is not CompatibilityLevel.NONE:
            self._check_unchanged(state)
            messages += await self._compare(state, prepared, level, list(reversed(versions)))
        self._check_unchanged(state)
        return [*messages, describe_check(config)] if messages else []

    async def _compare(
        self, state: SubjectState, prepared: PreparedSchema, level: CompatibilityLevel, versions: list[StoredVersion]
    ) -> list[str]:
        """Return why a schema is incompatible with versions of a subject, the latest first."""
        if state.config.compatibility_group is not None:
            versions = await self._select_group(state, prepared, versions)
        if not level.is_transitive:
            versions = versions[:1]
        deadline = time.monotonic() + SCHEMA_COMPARISON_SECONDS_MAX
        for chunk in _split(versions):
            compared = await self._load_versions(state, chunk, with_references=True)
            messages = await self._threads.run(
                _find_described_incompatibilities,
                self._parser, level, prepared.parsed, prepared.draft.type, compared, deadline,
            )  # fmt: skip
            self._check_unchanged(state)
            if messages:
                return messages
        return []

    async def _select_group(
        self, state: SubjectState, prepared: PreparedSchema, versions: list[StoredVersion]
    ) -> list[StoredVersion]:
        """Return the versions that are in the compatibility group of a new schema."""
        selected: list[StoredVersion] = []
        for chunk in _split(versions):
            compared = await self._load_versions(state, chunk, with_references=False)
            kept = {each.number for each in select_group(state.config, prepared.draft.metadata, compared)}
            selected += [version for version in chunk if version.number in kept]
            await asyncio.sleep(0)
            self._check_unchanged(state)
        return selected

    async def _load_versions(
        self, state: SubjectState, versions: Sequence[StoredVersion], *, with_references: bool
    ) -> list[ComparedVersion]:
        """Return versions in the form in which they are compared.

        One with a thousand references, or with a large rule set, takes several milliseconds.
        """
        slices = ListSlices()
        loaded = []
        for version in versions:
            await slices.pause_if_due()
            self._check_unchanged(state)
            loaded.append(load_compared_version(self._table, state.context, version, with_references=with_references))
        return loaded

    async def format_text(
        self, schema: StoredSchema, output_format: str, require_read: SubjectCheck | None = None
    ) -> str:
        """Return a stored schema in a format of its type, or its text if the format is empty or unknown.

        Raises:
            AccessDeniedError: The result would contain a schema of a subject that `require_read` rejects.
            UnprocessableSchemaError: The schema cannot be rendered.
        """
        output_format = output_format.strip()
        if not output_format or TYPES_BY_NUMBER[schema.schema_type] is SchemaType.JSON:
            return schema.text
        shows_references = output_format == RESOLVED_FORMAT
        unparsed = load_unparsed(self._table, schema, require_read=require_read if shows_references else None)
        return await self._threads.run(_format_text, self._parser, unparsed, output_format)


def _split(versions: Sequence[StoredVersion]) -> Iterable[Sequence[StoredVersion]]:
    return (versions[start : start + COMPARED_AT_ONCE] for start in range(0, len(versions), COMPARED_AT_ONCE))


def _find_first_same(
    parser: SchemaParser, new: ComparedVersion, versions: Sequence[ComparedVersion], deadline: float
) -> int | None:
    """Return the position of the first version that has the same schema, or None."""
    for position, version in enumerate(versions):
        check_deadline(deadline)
        try:
            if is_same_schema(parser, new, version):
                return position
        except (InvalidSchemaError, RecursionError) as error:
            raise describe_invalid_schema(version.schema.type, error) from None
    return None


def _find_described_incompatibilities(
    parser: SchemaParser,
    level: CompatibilityLevel,
    parsed: Schema,
    schema_type: SchemaType,
    versions: Sequence[ComparedVersion],
    deadline: float,
) -> list[str]:
    try:
        return find_incompatibilities(parser, level, parsed, schema_type, versions, deadline)
    except (InvalidSchemaError, RecursionError) as error:
        raise describe_invalid_schema(schema_type, error) from None


def _format_text(parser: SchemaParser, schema: UnparsedSchema, output_format: str) -> str:
    try:
        return format_parsed_schema(schema.type, parser.parse(schema, is_new=False), output_format)
    except (InvalidSchemaError, RecursionError) as error:
        raise describe_invalid_schema(schema.type, error) from None
