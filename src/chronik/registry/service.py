"""The operations of the schema registry, with the semantics of Confluent's REST API.

Any node serves them. A node parses and compares schemas before it proposes a command, so that applying the command is
cheap. Reads never miss a change that any node has acknowledged: an answer that a stale image could have caused is
confirmed with a majority of the cluster first. Only the content of a schema that is found by its id or GUID is returned
without confirmation, because it never changes.

Names of subjects may contain a context (`:.context:subject`). They are normalized first; results have normalized names.
Every method raises a `RegistryError` for an error that the client should see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge
from typing import NamedTuple
from uuid import UUID

import msgspec

from chronik.limits import (
    SCHEMAS_PER_RESPONSE_MAX,
    SCHEMAS_RESPONSE_BYTES_MAX,
    SUBJECT_NAME_CHARACTERS_MAX,
)
from chronik.metadata.commands.schemas import (
    MODES_PER_COMMAND_MAX,
    UNASSIGNED,
    DeleteSchemaVersions,
    RegisterSchema,
    SetSchemaConfig,
    SetSchemaContext,
    SetSchemaMode,
)
from chronik.metadata.records import ApplyResult
from chronik.metadata.schemas import (
    DEFAULT_CONTEXT,
    DEFAULT_SETTINGS,
    GLOBAL_CONTEXT,
    GLOBAL_SETTINGS,
    SUBJECTS_LOOKED_UP_MAX,
    SchemaTable,
    StoredSchema,
    StoredSubject,
    StoredVersion,
    VersionKey,
    join_subject,
    qualify_reference,
    split_registration,
    split_subject,
)
from chronik.metadata.stores.store import MetadataStore
from chronik.registry.entities import (
    Config,
    ContextId,
    RegistryConfigChange,
    SchemaRequest,
    SchemaString,
    SubjectSchema,
    SubjectVersion,
)
from chronik.registry.errors import (
    ContextNotEmptyError,
    IncompatibleSchemaError,
    InvalidSubjectError,
    OperationNotPermittedError,
    ReferenceExistsError,
    SchemaNotFoundError,
    SubjectConfigNotFoundError,
    SubjectModeNotFoundError,
    SubjectNotFoundError,
    SubjectNotSoftDeletedError,
    SubjectSoftDeletedError,
    UnprocessableSchemaError,
    VersionNotFoundError,
    VersionNotSoftDeletedError,
    VersionSoftDeletedError,
)
from chronik.registry.listing import (
    LATEST,
    ListSlices,
    find_version,
    is_listed,
    is_version_deleted,
    limit_concurrent_lists,
    parse_version,
    render_version,
    select_page,
    sort_in_slices,
)
from chronik.registry.matching import SchemaMatcher
from chronik.registry.parser import TYPE_NUMBERS
from chronik.registry.properties import check_rule_set, decode_properties, encode_limited, has_rule_of_type
from chronik.registry.proposals import Proposal, RegistryStore
from chronik.registry.references import SubjectCheck
from chronik.registry.registration import (
    NEXT_VERSION,
    PreparedSchema,
    SchemaDraft,
    SubjectState,
    build_draft,
    complete_properties,
    complete_text,
    load_subject_state,
)
from chronik.registry.schema import SchemaType
from chronik.registry.settings import (
    RegistryMode,
    apply_config_change,
    check_config_change,
    find_config,
    get_effective_config,
    get_effective_mode,
    get_own_config,
    get_own_mode,
    has_defaults_or_overrides,
    parse_mode,
)
from chronik.registry.subjects import (
    ALL_CONTEXTS_PREFIX,
    CONTEXT_PREFIX,
    DEFAULT_CONTEXT_PREFIX,
    check_subject,
    is_context,
    is_default_context,
    normalize_subject,
)

SubjectFilter = Callable[[str], bool]
"""A predicate on normalized names of subjects: whether the caller may see the subject."""


def accept_all(subject: str) -> bool:
    """Return True: the subject filter of callers that may see all subjects."""
    return True


class ResolvedSubject(str):
    """The name of the subject that a read accesses: see `SchemaRegistry.resolve_alias`."""

    __slots__ = ()


class _FoundSchema(NamedTuple):
    """A schema that was found by its id, and a version that has it."""

    schema: StoredSchema
    subject: str
    version: StoredVersion


class SchemaRegistry:
    """The schema registry of a cluster, as served by one node.

    Methods that take a filter `visible` handle subjects that it rejects as if they did not exist. Methods without it
    access only the subject that they name, or its alias in the case of reads: see `resolve_alias`.
    """

    def __init__(self, store: MetadataStore, *, now_ms: Callable[[], int]) -> None:
        self._store = RegistryStore(store)
        self._matcher = SchemaMatcher(self._store)
        self._now_ms = now_ms

    async def close(self) -> None:
        """Stop the threads that parse schemas."""
        await self._matcher.close()

    @property
    def _table(self) -> SchemaTable:
        return self._store.table

    # --- schemas of subjects ---

    async def register(self, subject: str, request: SchemaRequest, *, normalize: bool = False) -> SubjectSchema:
        """Register a schema as a new version of a subject, and return the version.

        If a version with the same schema exists, return that one. The caller renders it in the wanted format with
        `format_schema`.
        """
        check_rule_set(request.rule_set)
        name = check_subject(subject)
        draft = build_draft(request)
        return await self._store.change(name, lambda: self._plan_registration(name, draft, normalize=normalize))

    async def _plan_registration(
        self, name: str, draft: SchemaDraft, *, normalize: bool
    ) -> SubjectSchema | Proposal[SubjectSchema]:
        """Return the version that has a schema already, or the command that registers the schema."""
        state = load_subject_state(self._table, name)
        normalize = normalize or bool(state.config.normalize)
        if state.subject is not None and not has_defaults_or_overrides(state.config):
            found = await self._find_registered(state, draft, normalize=normalize)
            if found is not None:
                return self._render_version(name, found)
        _check_registration_mode(state, draft)
        if state.mode is RegistryMode.IMPORT:
            if draft.is_empty:
                raise UnprocessableSchemaError("Empty schema")
            completed = draft
        else:
            completed = complete_properties(complete_text(draft, state), state, new_version=state.next_version)
        prepared = await self._matcher.prepare(state, completed, is_new=draft.id < 0, normalize=normalize)
        known = self._matcher.find_by_content(state, prepared)
        schema_id = known.id if known is not None and draft.id < 0 else draft.id
        if draft.version == NEXT_VERSION:
            same = (
                self._matcher.find_version_of(state, known, deleted=False) if known and known.id == schema_id else None
            )
            same = same or await self._matcher.find_same(state, prepared, state.live_versions, schema_id)
            if same is not None:
                return self._render_version(name, same)
        if state.mode is not RegistryMode.IMPORT:
            messages = await self._matcher.find_incompatibilities(state, prepared, state.live_versions)
            if messages:
                raise IncompatibleSchemaError(
                    f'Schema being registered is incompatible with an earlier schema for subject "{name}", '
                    f"details: [{', '.join(messages)}]"
                )
            if draft.version > 0 and draft.version != state.next_version:
                raise UnprocessableSchemaError("Version is not one more than previous version")
        self._check_id_is_free(state, prepared, draft.id)
        return self._propose_registration(state, prepared)

    async def _find_registered(
        self, state: SubjectState, draft: SchemaDraft, *, normalize: bool
    ) -> StoredVersion | None:
        """Return the version that answers a registration without a change, or None."""
        if draft.is_empty:
            return None
        try:
            prepared = await self._matcher.prepare(state, draft, is_new=draft.id < 0, normalize=normalize)
        except UnprocessableSchemaError:
            prepared = await self._matcher.prepare(state, draft, is_new=False, normalize=normalize)
        if draft.version == LATEST:
            found = await self._matcher.find_same(state, prepared, state.live_versions[-1:])
        else:
            found = await self._matcher.find_prepared(state, prepared, deleted=False)
        if found is None or draft.version in (NEXT_VERSION, LATEST):
            return found if found is not None and draft.id in (UNASSIGNED, found.schema_id) else None
        if found.schema_id != draft.id:
            return None
        assert state.subject is not None
        wanted = state.subject.find_version(draft.version)
        return wanted if wanted is not None and not wanted.is_deleted and wanted.schema_id == draft.id else None

    def _check_id_is_free(self, state: SubjectState, prepared: PreparedSchema, schema_id: int) -> None:
        known = self._table.schemas.get((state.context, schema_id))
        if known is not None and known.content != prepared.content:
            context = join_subject(state.context, "")
            raise OperationNotPermittedError(
                f"Overwrite new schema with id {schema_id} in context {context} is not permitted."
            )

    def _propose_registration(self, state: SubjectState, prepared: PreparedSchema) -> Proposal[SubjectSchema]:
        draft = prepared.draft
        command = RegisterSchema(
            subject=state.name,
            schema_type=TYPE_NUMBERS[draft.type],
            text=prepared.text,
            references=prepared.direct.versions,
            properties=prepared.properties,
            guid=prepared.guid,
            referenced_ids=prepared.direct.schema_ids,
            subject_revision=state.revision,
            settings_revisions=state.settings_revisions,
            time_ms=self._now_ms(),
            schema_id=draft.id,
            version=draft.version if draft.version > 0 else UNASSIGNED,
        )

        def finish(result: ApplyResult) -> SubjectSchema:
            schema_id, number = split_registration(result.value)
            schema = StoredSchema(state.context, schema_id, *prepared.content, prepared.guid)
            return render_version(state.name, schema, StoredVersion(number, schema_id, command.time_ms))

        return Proposal(command, finish)

    async def look_up(
        self,
        subject: str,
        request: SchemaRequest,
        *,
        normalize: bool = False,
        deleted: bool = False,
        format: str = "",
        require_read: SubjectCheck | None = None,
    ) -> SubjectSchema:
        """Return the version of the subject that has the schema in the request."""
        draft = build_draft(request)
        name = await self._resolve_for_read(subject)
        found = await self._store.evaluate(
            name, lambda: self._look_up(name, draft, normalize=normalize, deleted=deleted)
        )
        return await self.format_schema(found, format, require_read)

    async def _look_up(self, name: str, draft: SchemaDraft, *, normalize: bool, deleted: bool) -> SubjectSchema:
        state = load_subject_state(self._table, name)
        normalize = normalize or bool(state.config.normalize)
        found = None
        if not draft.is_empty:
            prepared = await self._matcher.prepare(state, draft, is_new=False, normalize=normalize)
            found = await self._matcher.find_prepared(state, prepared, deleted=deleted)
            if found is None and state.latest is not None:
                completed = complete_properties(draft, state, new_version=None)
                if completed != draft:
                    prepared = await self._matcher.prepare(state, completed, is_new=False, normalize=normalize)
                    found = await self._matcher.find_prepared(state, prepared, deleted=deleted)
        if found is None:
            raise SchemaNotFoundError() if self._has_subject(name, deleted=deleted) else SubjectNotFoundError(name)
        return self._render_version(name, found)

    async def get_version(
        self,
        subject: str,
        version: str | int,
        *,
        deleted: bool = False,
        format: str = "",
        reference_format: str = "",
        require_read: SubjectCheck | None = None,
    ) -> SubjectSchema:
        """Return a version of a subject. The version is a number, "latest" or -1."""
        number = parse_version(version)
        name = await self._resolve_for_read(subject)
        found = self._get_version(name, number, deleted=deleted)
        rendered = self._render_version(name, found, reference_format=reference_format)
        schema = self._table.schemas[split_subject(name)[0], found.schema_id]
        return await self._format_stored(rendered, schema, format, require_read)

    def _get_version(self, name: str, number: int, *, deleted: bool) -> StoredVersion:
        subject = self._table.subjects.get(name)
        found = None if subject is None else find_version(subject, number)
        if found is None or (found.is_deleted and not deleted):
            if not self._has_subject(name, deleted=deleted):
                raise SubjectNotFoundError(name)
            raise VersionNotFoundError(number)
        return found

    async def get_latest_with_metadata(
        self,
        subject: str,
        properties: Mapping[str, str],
        *,
        deleted: bool = False,
        format: str = "",
        require_read: SubjectCheck | None = None,
    ) -> SubjectSchema:
        """Return the latest version of a subject whose metadata has all the properties."""
        name = await self._resolve_for_read(subject)
        table, context = self._table, split_subject(name)[0]
        known = table.subjects.get(name)
        versions = [] if known is None else [each for each in known.versions if deleted or not each.is_deleted]
        schemas = [table.schemas[context, each.schema_id] for each in versions]
        slices = ListSlices()
        for version, schema in zip(reversed(versions), reversed(schemas), strict=True):
            await slices.pause_if_due()
            metadata = decode_properties(schema.properties).metadata
            if metadata is not None and properties.items() <= (metadata.properties or {}).items():
                rendered = render_version(name, schema, version)
                return await self._format_stored(rendered, schema, format, require_read)
        raise SchemaNotFoundError() if self._has_subject(name, deleted=deleted) else SubjectNotFoundError(name)

    async def list_versions(
        self, subject: str, *, deleted: bool = False, deleted_only: bool = False, offset: int = 0, limit: int = -1
    ) -> list[int]:
        """Return the numbers of a subject's versions."""
        name = await self._resolve_for_read(subject)
        known = self._table.subjects.get(name)
        if known is None or (known.is_deleted and not deleted and not deleted_only):
            raise SubjectNotFoundError(name)
        numbers = [each.number for each in known.versions if is_listed(each.is_deleted, deleted, deleted_only)]
        return select_page(numbers, offset, limit)

    async def list_referencing_ids(
        self, subject: str, version: str | int, *, deleted: bool = False, offset: int = 0, limit: int = -1
    ) -> list[int]:
        """Return the ids of the schemas that refer to a version of a subject."""
        number = parse_version(version)
        name = await self._resolve_for_read(subject)
        found = self._get_version(name, number, deleted=True)
        slices = ListSlices()
        schema_ids = []
        for key in await sort_in_slices(list(self._table.find_referrers((name, found.number)))):
            await slices.pause_if_due()
            if deleted or self._table.is_schema_live(key):
                schema_ids.append(key[1])
        return select_page(schema_ids, offset, limit, SCHEMAS_PER_RESPONSE_MAX)

    async def delete_version(self, subject: str, version: str | int, *, permanent: bool = False) -> int:
        """Delete a version of a subject, and return its number.

        A version must be soft-deleted before it is deleted permanently.
        """
        number = parse_version(version)
        name = normalize_subject(subject)
        return await self._store.change(name, lambda: self._plan_version_deletion(name, number, permanent=permanent))

    async def _plan_version_deletion(self, name: str, number: int, *, permanent: bool) -> int | Proposal[int]:
        found = self._get_version(name, number, deleted=True)
        revision = self._table.subjects[name].revision
        if found.is_deleted and not permanent:
            raise VersionSoftDeletedError(name, found.number)
        self._check_is_writable(name)
        if await self._is_referenced((name, found.number), deleted=permanent):
            raise ReferenceExistsError(name, found.number)
        if permanent and not found.is_deleted:
            raise VersionNotSoftDeletedError(name, found.number)
        command = DeleteSchemaVersions(name, (found.number,), permanent, revision)
        return Proposal(command, lambda _: found.number)

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete a subject with its config and mode, and return the numbers of the deleted versions."""
        name = normalize_subject(subject)
        return await self._store.change(name, lambda: self._plan_subject_deletion(name, permanent=permanent))

    async def _plan_subject_deletion(self, name: str, *, permanent: bool) -> list[int] | Proposal[list[int]]:
        subject = self._table.subjects.get(name)
        if subject is None:
            raise SubjectNotFoundError(name)
        if subject.is_deleted and not permanent:
            raise SubjectSoftDeletedError(name)
        self._check_is_writable(name)
        versions = subject.versions if permanent else subject.live_versions
        for version in versions:
            if await self._is_referenced((name, version.number), deleted=permanent, ignored=name):
                raise ReferenceExistsError(name, version.number)
            if permanent and not version.is_deleted:
                raise SubjectNotSoftDeletedError(name)
        numbers = [version.number for version in versions]
        return Proposal(DeleteSchemaVersions(name, tuple(numbers), permanent, subject.revision), lambda _: numbers)

    async def _is_referenced(self, version: VersionKey, *, deleted: bool, ignored: str | None = None) -> bool:
        """Return whether a version of a subject other than `ignored` refers to a version.

        With `deleted`, soft-deleted versions count as well.
        """
        slices = ListSlices()
        for key in list(self._table.find_referrers(version)):
            for name, numbers in list(self._table.versions_with_schema(key).items()):
                await slices.pause_if_due()
                if name != ignored and (deleted or self._table.has_live_version(name, numbers)):
                    return True
        return False

    async def check_compatibility(
        self, subject: str, request: SchemaRequest, version: str | int | None = None, *, normalize: bool = False
    ) -> list[str]:
        """Return why a schema is incompatible with a subject; empty if it is compatible.

        If `version` is None, compare with the versions with which a registration would compare. An invalid schema
        raises UnprocessableSchemaError, which the caller reports as a message if the client asks for messages.
        """
        number = None if version is None else parse_version(version)
        draft = build_draft(request)
        name = await self._resolve_for_read(subject)
        return await self._store.evaluate(
            name, lambda: self._check_compatibility(name, draft, number, normalize=normalize)
        )

    async def _check_compatibility(
        self, name: str, draft: SchemaDraft, number: int | None, *, normalize: bool
    ) -> list[str]:
        state = load_subject_state(self._table, name)
        versions = state.live_versions
        if number == LATEST:
            versions = versions[-1:]
        elif number is not None:
            versions = [version for version in versions if version.number == number]
            if not versions:
                raise VersionNotFoundError(number)
        if draft.is_empty:
            raise UnprocessableSchemaError("Empty schema")
        normalize = normalize or bool(state.config.normalize)
        prepared = await self._matcher.prepare(state, draft, is_new=True, normalize=normalize)
        return await self._matcher.find_incompatibilities(state, prepared, versions)

    # --- schemas by id and lists ---

    async def get_by_id(
        self,
        schema_id: int,
        subject: str | None = None,
        *,
        format: str = "",
        reference_format: str = "",
        fetch_max_id: bool = False,
        visible: SubjectFilter = accept_all,
        require_read: SubjectCheck | None = None,
    ) -> SchemaString:
        """Return the schema with the id.

        The id is looked up in the context of `subject`, or in all contexts if the context does not have it and
        `subject` names no context.
        """
        is_confirmed = fetch_max_id
        if fetch_max_id:
            await self._store.confirm()
        found = await self._find_by_id(schema_id, subject, visible)
        if found is None and not is_confirmed:
            await self._store.confirm()
            found = await self._find_by_id(schema_id, subject, visible)
        if found is None:
            raise SchemaNotFoundError(schema_id)
        rendered = render_version(found.subject, found.schema, found.version, reference_format=reference_format)
        text = (await self._format_stored(rendered, found.schema, format, require_read)).schema
        return SchemaString(
            schema=text,
            subject=None if subject is None else found.subject,
            version=None if subject is None else found.version.number,
            guid=rendered.guid,
            schema_type=rendered.schema_type,
            references=rendered.references,
            metadata=rendered.metadata,
            rule_set=rendered.rule_set,
            max_id=self._table.next_id(found.schema.context) - 1 if fetch_max_id else None,
            ts=rendered.ts,
            deleted=rendered.deleted,
        )

    async def _find_by_id(self, schema_id: int, subject: str | None, visible: SubjectFilter) -> _FoundSchema | None:
        """Return the schema with an id and a version that has it, if possible of the given subject."""
        context, name = (DEFAULT_CONTEXT, "") if subject is None else split_subject(self._resolve_alias(subject))
        if name:
            contexts = [context, *self._list_other_contexts()] if context == DEFAULT_CONTEXT else [context]
            for each in contexts:
                qualified = join_subject(each, name)
                numbers = self._table.versions_with_schema((each, schema_id)).get(qualified)
                if numbers and visible(qualified):
                    return self._load_found((each, schema_id), qualified, numbers)
            if context != DEFAULT_CONTEXT:
                return None
        users = self._table.versions_with_schema((context, schema_id))
        found = await self._find_visible_user(users, visible)
        return None if found is None else self._load_found((context, schema_id), *found)

    async def _find_visible_user(
        self, users: Mapping[str, Sequence[int]], visible: SubjectFilter
    ) -> tuple[str, Sequence[int]] | None:
        if visible is accept_all:
            return next(iter(users.items()), None)
        slices = ListSlices()
        for name, numbers in list(users.items()):
            await slices.pause_if_due()
            if visible(name):
                return name, numbers
        return None

    def _load_found(self, key: tuple[str, int], name: str, numbers: Sequence[int]) -> _FoundSchema | None:
        """Return a schema with a version, preferably one that is not deleted; None if it was deleted meanwhile."""
        schema, subject = self._table.schemas.get(key), self._table.subjects.get(name)
        if schema is None or subject is None:
            return None
        versions = list(filter(None, map(subject.find_version, reversed(numbers))))
        live = [version for version in versions if not version.is_deleted]
        return _FoundSchema(schema, name, (live or versions)[0]) if versions else None

    def _list_other_contexts(self) -> list[str]:
        return sorted(name for name in self._table.contexts if name != DEFAULT_CONTEXT)

    async def list_subjects_of_id(
        self,
        schema_id: int,
        subject: str | None = None,
        *,
        deleted: bool = False,
        offset: int = 0,
        limit: int = -1,
        visible: SubjectFilter = accept_all,
    ) -> list[str]:
        """Return the subjects that have a version with the id."""
        versions = await self._list_versions_of_id(schema_id, subject, deleted=deleted, visible=visible)
        return select_page(list(dict.fromkeys(each.subject for each in versions)), offset, limit)

    async def list_versions_of_id(
        self,
        schema_id: int,
        subject: str | None = None,
        *,
        deleted: bool = False,
        offset: int = 0,
        limit: int = -1,
        visible: SubjectFilter = accept_all,
    ) -> list[SubjectVersion]:
        """Return the versions of subjects that have the id."""
        versions = await self._list_versions_of_id(schema_id, subject, deleted=deleted, visible=visible)
        return select_page(versions, offset, limit)

    async def _list_versions_of_id(
        self, schema_id: int, subject: str | None, *, deleted: bool, visible: SubjectFilter
    ) -> list[SubjectVersion]:
        await self._store.confirm()
        async with limit_concurrent_lists(self._table):
            found = await self._find_by_id(schema_id, subject, visible)
            if found is None:
                raise SchemaNotFoundError()
            subjects = self._table.subjects
            users = dict(self._table.versions_with_schema(found.schema.key))
            known = dict(subjects) if len(users) > SUBJECTS_LOOKED_UP_MAX else {name: subjects[name] for name in users}
            slices = ListSlices()
            names = []
            for name in users:
                await slices.pause_if_due()
                if visible(name):
                    names.append(name)
            listed = []
            for name in await sort_in_slices(names):
                await slices.pause_if_due()
                numbers = (each for each in users[name] if deleted or not is_version_deleted(known[name], each))
                listed += [SubjectVersion(name, number) for number in numbers]
            return listed

    async def get_by_guid(
        self,
        guid: str,
        *,
        format: str = "",
        visible: SubjectFilter = accept_all,
        require_read: SubjectCheck | None = None,
    ) -> SchemaString:
        """Return the schema with the GUID."""
        found = await self._find_by_guid(guid, visible)
        if not found:
            await self._store.confirm()
            found = await self._find_by_guid(guid, visible)
        if not found:
            raise SchemaNotFoundError(guid)
        first = found[0]
        rendered = await self._format_stored(
            render_version(first.subject, first.schema, first.version), first.schema, format, require_read
        )
        return SchemaString(
            schema=rendered.schema,
            guid=rendered.guid,
            schema_type=rendered.schema_type,
            references=rendered.references,
            metadata=rendered.metadata,
            rule_set=rendered.rule_set,
            ts=rendered.ts,
            deleted=rendered.deleted,
        )

    async def list_ids_of_guid(self, guid: str, *, visible: SubjectFilter = accept_all) -> list[ContextId]:
        """Return the contexts and ids of the schema with the GUID."""
        await self._store.confirm()
        found = [each.schema for each in await self._find_by_guid(guid, visible)]
        return [ContextId(context, schema_id) for context, schema_id in sorted(schema.key for schema in found)]

    async def _find_by_guid(self, guid: str, visible: SubjectFilter) -> list[_FoundSchema]:
        """Return the schemas with a GUID that a visible subject has, those of the default context first."""
        try:
            key = UUID(guid).bytes
        except ValueError:
            return []
        found = []
        for context in (DEFAULT_CONTEXT, *self._list_other_contexts()):
            for schema_id in self._table.find_ids_by_guid(context, key):
                user = await self._find_visible_user(self._table.versions_with_schema((context, schema_id)), visible)
                loaded = None if user is None else self._load_found((context, schema_id), *user)
                if loaded is not None:
                    found.append(loaded)
        return found

    async def list_subjects(
        self,
        prefix: str = ALL_CONTEXTS_PREFIX,
        *,
        deleted: bool = False,
        deleted_only: bool = False,
        offset: int = 0,
        limit: int = -1,
        visible: SubjectFilter = accept_all,
    ) -> list[str]:
        """Return the names of the subjects that start with a prefix; the prefix `:*:` matches all contexts."""
        await self._store.confirm()
        async with limit_concurrent_lists(self._table):
            slices = ListSlices()
            names = []
            for subject in self._select_subjects(prefix):
                await slices.pause_if_due()
                if is_listed(subject.is_deleted, deleted, deleted_only) and visible(subject.name):
                    names.append(subject.name)
                    if 0 < limit <= len(names) - max(0, offset):
                        break
        return select_page(names, offset, limit)

    def _select_subjects(self, prefix: str) -> Iterator[StoredSubject]:
        """Return the current subjects that start with a prefix, in the order of their names."""
        table = self._table
        if prefix in (ALL_CONTEXTS_PREFIX, CONTEXT_PREFIX):
            return table.iter_subjects()
        if prefix.startswith(ALL_CONTEXTS_PREFIX):
            rest = prefix.removeprefix(ALL_CONTEXTS_PREFIX)
            others = [table.iter_subjects(join_subject(context, rest)) for context in self._list_other_contexts()]
            return merge(table.iter_subjects(rest, without=CONTEXT_PREFIX), *others, key=lambda subject: subject.name)
        if prefix.startswith(CONTEXT_PREFIX) and not prefix.startswith(DEFAULT_CONTEXT_PREFIX):
            return table.iter_subjects(prefix)
        return table.iter_subjects(prefix.removeprefix(DEFAULT_CONTEXT_PREFIX), without=CONTEXT_PREFIX)

    async def list_schemas(
        self,
        prefix: str = "",
        *,
        deleted: bool = False,
        latest_only: bool = False,
        rule_type: str = "",
        offset: int = 0,
        limit: int = -1,
        visible: SubjectFilter = accept_all,
    ) -> list[SubjectSchema]:
        """Return the versions of all subjects whose name starts with a prefix.

        Responses are limited to SCHEMAS_PER_RESPONSE_MAX versions and SCHEMAS_RESPONSE_BYTES_MAX bytes, but have at
        least one version: clients continue with `offset`.
        """
        await self._store.confirm()
        async with limit_concurrent_lists(self._table):
            schemas = self._table.schemas
            subjects = self._select_subjects(prefix)
            limit = limit if 0 < limit <= SCHEMAS_PER_RESPONSE_MAX else SCHEMAS_PER_RESPONSE_MAX
            skipped, size = 0, 0
            found: list[SubjectSchema] = []
            slices = ListSlices()
            for subject in subjects:
                await slices.pause_if_due()
                if not visible(subject.name):
                    continue
                versions = [each for each in subject.versions if deleted or not each.is_deleted]
                versions = versions[-1:] if latest_only else versions
                if not rule_type and skipped + len(versions) <= offset:
                    skipped += len(versions)
                    continue
                for version in versions:
                    await slices.pause_if_due()
                    schema = schemas.get((subject.context, version.schema_id))
                    if schema is None:  # It was deleted after the list was started.
                        continue
                    if rule_type and not has_rule_of_type(decode_properties(schema.properties).rule_set, rule_type):
                        continue
                    if skipped < offset:
                        skipped += 1
                        continue
                    size += schema.size
                    if len(found) == limit or (found and size > SCHEMAS_RESPONSE_BYTES_MAX):
                        return found
                    found.append(render_version(subject.name, schema, version))
        return found

    async def list_contexts(
        self, prefix: str = "", *, offset: int = 0, limit: int = -1, visible: SubjectFilter = accept_all
    ) -> list[str]:
        """Return the names of the contexts that have had subjects and were not deleted, and of the default context `.`.

        A context is visible if its own name, such as `:.lab:`, or one of its subjects is.
        """
        await self._store.confirm()
        contexts = [DEFAULT_CONTEXT]
        for name in self._list_other_contexts():
            if not self._table.contexts[name].is_deleted:
                contexts.append(name)
        selected = [name for name in contexts if name.startswith(prefix)]
        if visible is not accept_all:
            selected = [name for name in selected if await self._is_context_visible(name, visible)]
        return select_page(selected, offset, limit)

    async def _is_context_visible(self, context: str, visible: SubjectFilter) -> bool:
        if context == DEFAULT_CONTEXT or visible(join_subject(context, "")):
            return True
        slices = ListSlices()
        for subject in self._table.iter_subjects(join_subject(context, "")):
            await slices.pause_if_due()
            if visible(subject.name):
                return True
        return False

    async def delete_context(self, context: str) -> None:
        """Delete a context without subjects, with its config and mode."""
        name = context.removeprefix(":").removesuffix(":")
        if not name.startswith("."):
            name = f".{name}"
        if ":" in name or name == GLOBAL_CONTEXT or len(name) > SUBJECT_NAME_CHARACTERS_MAX:
            raise InvalidSubjectError(context)
        await self._store.change(name, lambda: self._plan_context_deletion(name))

    async def _plan_context_deletion(self, name: str) -> Proposal[None] | None:
        table = self._table
        if table.count_subjects(name):
            raise ContextNotEmptyError(join_subject(name, ""))
        known = table.contexts.get(name)
        has_settings = join_subject(name, "") in table.settings
        if name == DEFAULT_CONTEXT or ((known is None or known.is_deleted) and not has_settings):
            return None
        return Proposal(SetSchemaContext(name, is_deleted=True), lambda _: None)

    def list_types(self) -> list[str]:
        """Return the supported schema types."""
        return [SchemaType.JSON.value, SchemaType.PROTOBUF.value, SchemaType.AVRO.value]

    async def format_schema(
        self, found: SubjectSchema, format: str, require_read: SubjectCheck | None = None
    ) -> SubjectSchema:
        """Return the version with its schema rendered in a format of its type, such as `resolved` for Avro."""
        if not format.strip():
            return found
        schema = self._table.schemas.get((split_subject(found.subject)[0], found.id))
        return found if schema is None else await self._format_stored(found, schema, format, require_read)

    async def _format_stored(
        self, rendered: SubjectSchema, schema: StoredSchema, format: str, require_read: SubjectCheck | None
    ) -> SubjectSchema:
        return msgspec.structs.replace(rendered, schema=await self._matcher.format_text(schema, format, require_read))

    async def resolve_alias(self, subject: str) -> ResolvedSubject:
        """Return the normalized name of the subject that reads of `subject` access: its alias, if it has one.

        A caller authorizes reads for this name, and passes it to the read: then the read accesses this subject, even if
        the alias has changed, and it needs no further confirmation.
        """
        await self._store.confirm()
        return self._resolve_alias(subject)

    def _resolve_alias(self, subject: str) -> ResolvedSubject:
        name = normalize_subject(subject)
        config = find_config(self._table, name)
        if config is not None and config.alias:
            name = qualify_reference(split_subject(name)[0], config.alias)
        return ResolvedSubject(name)

    async def _resolve_for_read(self, subject: str) -> str:
        """Confirm that the image is not stale, and return the name of the subject to read."""
        return str(subject if isinstance(subject, ResolvedSubject) else await self.resolve_alias(subject))

    # --- configs and modes ---

    async def get_config(self, subject: str | None = None, *, default_to_global: bool = False) -> Config:
        """Return the config of a subject or context, or of the registry if `subject` is None.

        With `default_to_global`, return the effective config.
        """
        await self._store.confirm()
        name = _normalize_settings(subject)
        if default_to_global:
            return get_effective_config(self._table, name)
        config = get_own_config(self._table, name)
        if config is None:
            raise SubjectConfigNotFoundError(name)
        return config

    async def update_config(self, subject: str | None, change: RegistryConfigChange) -> Config:
        """Change the config of a subject, a context or the registry, and return the new config."""
        checked = check_config_change(change)
        name = _check_settings(subject)
        return await self._store.change(name, lambda: self._plan_config_change(name, checked))

    async def _plan_config_change(self, name: str, change: RegistryConfigChange) -> Config | Proposal[Config]:
        self._check_is_writable(name)
        config = apply_config_change(find_config(self._table, name), change)
        command = SetSchemaConfig(name, encode_limited(config), self._get_settings_revision(name))
        return Proposal(command, lambda _: config)

    async def delete_config(self, subject: str | None = None) -> Config:
        """Delete the config of a subject, a context or the registry, and return the deleted config."""
        name = _normalize_settings(subject)
        return await self._store.change(name, lambda: self._plan_config_deletion(name))

    async def _plan_config_deletion(self, name: str) -> Config | Proposal[Config]:
        config = get_own_config(self._table, name)
        if config is None:
            raise SubjectNotFoundError(name)
        self._check_is_writable(name)
        if find_config(self._table, name) is None:
            return config
        return Proposal(SetSchemaConfig(name, "", self._get_settings_revision(name)), lambda _: config)

    def _get_settings_revision(self, name: str) -> int:
        settings = self._table.settings.get(name)
        return 0 if settings is None else settings.revision

    async def get_mode(self, subject: str | None = None, *, default_to_global: bool = False) -> str:
        """Return the mode of a subject or context, or of the registry if `subject` is None."""
        await self._store.confirm()
        name = _normalize_settings(subject)
        if default_to_global:
            return str(get_effective_mode(self._table, name))
        mode = get_own_mode(self._table, name)
        if mode is None:
            raise SubjectModeNotFoundError(name)
        return str(mode)

    async def set_mode(self, subject: str | None, mode: str, *, force: bool = False) -> str:
        """Set the mode of a subject, a context or the registry, and return it.

        Mode IMPORT requires that no schemas exist there, unless `force` is set. Soft-deleted ones are then deleted
        permanently.
        """
        name = _check_settings(subject)
        wanted = parse_mode(mode)
        while not await self._store.change(name, lambda: self._plan_mode(name, wanted, force=force)):
            pass
        return str(wanted)

    async def _plan_mode(self, name: str, mode: RegistryMode, *, force: bool) -> bool | Proposal[bool]:
        """Return the command that sets a mode, or one that removes soft-deleted versions first.

        The result of the change is whether the mode is set.
        """
        is_import = mode is RegistryMode.IMPORT and not force
        if not is_import or get_effective_mode(self._table, name) is RegistryMode.IMPORT:
            return Proposal(SetSchemaMode((name,), str(mode)), lambda _: True)
        slices = ListSlices()
        subjects = []
        for subject in self._iter_scope(name):
            await slices.pause_if_due()
            if not subject.is_deleted:
                raise OperationNotPermittedError("Cannot import since found existing subjects")
            subjects.append(subject)
        for subject in subjects:
            await slices.pause_if_due()
            for version in subject.versions:
                if any(self._table.find_referrers((subject.name, version.number))):
                    raise ReferenceExistsError(subject.name, version.number)
        for subject in subjects[:1]:
            numbers = tuple(version.number for version in subject.versions)
            return Proposal(DeleteSchemaVersions(subject.name, numbers, True, subject.revision), lambda _: False)
        return Proposal(SetSchemaMode((name,), str(mode), requires_empty=True), lambda _: True)

    def _iter_scope(self, name: str) -> Iterator[StoredSubject]:
        """Return the subjects to which a mode applies. The default and the global context stand for all contexts."""
        if name in (DEFAULT_SETTINGS, GLOBAL_SETTINGS):
            return self._table.iter_subjects()
        if is_context(name):
            return self._table.iter_subjects(name)
        known = self._table.subjects.get(name)
        return iter(()) if known is None else iter((known,))

    async def delete_mode(self, subject: str | None = None, *, recursive: bool = False) -> str | None:
        """Delete the mode of a subject, a context or the registry, and return the deleted mode.

        With `recursive`, also delete the modes of all subjects of the context.
        """
        name = _normalize_settings(subject)
        await self._store.confirm()
        mode = get_own_mode(self._table, name)
        if mode is None and not recursive:
            raise SubjectNotFoundError(name)
        names = [name] if self._has_mode(name) else []
        if recursive and is_context(name):
            prefix_context = split_subject(name)[0]
            names += [
                each
                for each, settings in self._table.settings.items()
                if settings.mode and each != name and split_subject(each)[0] == prefix_context
            ]
        for start in range(0, len(names), MODES_PER_COMMAND_MAX):
            batch = tuple(names[start : start + MODES_PER_COMMAND_MAX])
            await self._store.change(name, partial(self._plan_mode_deletion, batch))
        return None if mode is None else str(mode)

    async def _plan_mode_deletion(self, names: tuple[str, ...]) -> Proposal[None] | None:
        return Proposal(SetSchemaMode(names, ""), lambda _: None)

    def _has_mode(self, name: str) -> bool:
        settings = self._table.settings.get(name)
        return settings is not None and bool(settings.mode)

    def _check_is_writable(self, name: str) -> None:
        """Raise OperationNotPermittedError if the mode of a subject or context is read-only."""
        if get_effective_mode(self._table, name).is_read_only:
            raise _not_permitted(name, "read-only mode", negated=False)

    # --- rendering ---

    def _has_subject(self, name: str, *, deleted: bool) -> bool:
        """Return whether a subject exists, optionally with soft-deleted versions only; or a context has subjects."""
        known = self._table.subjects.get(name)
        if known is None:
            return is_context(name) and self._table.has_versions(name)
        return deleted or not known.is_deleted

    def _render_version(self, name: str, version: StoredVersion, *, reference_format: str = "") -> SubjectSchema:
        schema = self._table.schemas[split_subject(name)[0], version.schema_id]
        return render_version(name, schema, version, reference_format=reference_format)


def _normalize_settings(subject: str | None) -> str:
    """Return the name of the settings of a subject or context. None and the default context stand for the registry."""
    return DEFAULT_SETTINGS if subject is None or is_default_context(subject) else normalize_subject(subject)


def _check_settings(subject: str | None) -> str:
    """Return the name of the settings of a subject or context that a client may create.

    Raises:
        InvalidSubjectError: The name is invalid.
    """
    if subject is None or is_default_context(subject):
        return DEFAULT_SETTINGS
    return check_subject(subject, allows_context=True)


def _check_registration_mode(state: SubjectState, draft: SchemaDraft) -> None:
    """Raise OperationNotPermittedError if the mode of a subject forbids a registration."""
    if state.mode.is_read_only:
        raise _not_permitted(state.name, "read-only mode", negated=False)
    if draft.id >= 0 and state.mode is not RegistryMode.IMPORT:
        raise _not_permitted(state.name, "import mode", negated=True)
    if draft.id < 0 and state.mode is not RegistryMode.READWRITE:
        raise _not_permitted(state.name, "read-write mode", negated=True)


def _not_permitted(name: str, mode: str, *, negated: bool) -> OperationNotPermittedError:
    subject = "null" if name == DEFAULT_SETTINGS else name
    context = join_subject(split_subject(name)[0], "")
    return OperationNotPermittedError(f"Subject {subject} in context {context} is {'not ' if negated else ''}in {mode}")
