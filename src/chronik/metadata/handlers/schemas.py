"""Handlers of the schema registry's commands. They assign ids and versions, and never parse a schema."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from chronik.limits import (
    SCHEMA_CONTEXTS_MAX,
    SCHEMA_SETTINGS_MAX,
    SCHEMAS_BYTES_MAX,
    SUBJECT_VERSIONS_MAX,
    SUBJECTS_MAX,
)
from chronik.metadata.commands.schemas import (
    ANY_REVISION,
    UNASSIGNED,
    DeleteSchemaVersions,
    RegisterSchema,
    SetSchemaConfig,
    SetSchemaContext,
    SetSchemaMode,
)
from chronik.metadata.handlers import CommandHandlers
from chronik.metadata.records import ApplyResult, CommandRejectedError
from chronik.metadata.schemas import (
    DEFAULT_CONTEXT,
    DEFAULT_SETTINGS,
    GLOBAL_CONTEXT,
    SchemaContent,
    SchemaContext,
    SchemaSettings,
    SchemaTable,
    StoredSchema,
    StoredSubject,
    StoredVersion,
    combine_registration,
    join_subject,
    qualify_reference,
    split_subject,
)
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode

SCHEMA_ID_MAX: Final = 2**31 - 1
VERSION_MAX: Final = 2**31 - 1
"""The highest schema id and version number: clients read them as signed 32-bit integers."""

STALE: Final = ErrorCode.INVALID_UPDATE_VERSION
"""The error code of commands whose proposer has seen an older state. The proposer checks again and retries."""


def register_schema(writer: ImageWriter, command: RegisterSchema, index: int) -> ApplyResult:
    """Apply a RegisterSchema command: add a version, and the schema unless the context has it already."""
    table = writer.image.schemas
    context, name = split_subject(command.subject)
    if not name or context == GLOBAL_CONTEXT or command.subject != join_subject(context, name):
        message = f"{command.subject!r} is not the canonical name of a subject"
        raise CommandRejectedError(ErrorCode.INVALID_REQUEST, message)
    _check_revisions(table, command)
    subject = table.subjects.get(command.subject)
    if subject is None:
        subject = StoredSubject(command.subject, 1, index, ())
    schema, is_new = _find_or_build_schema(table, command, context)
    number = subject.next_version if command.version == UNASSIGNED else command.version
    known = subject.find_version(number)
    if known is not None and known.schema_id != schema.id:
        message = f"version {number} of {command.subject!r} has another schema"
        raise CommandRejectedError(ErrorCode.DUPLICATE_RESOURCE, message)
    if known is not None and (command.is_deleted or not known.is_deleted):
        return ApplyResult(value=combine_registration(schema.id, number))
    if number > VERSION_MAX:
        message = f"all version numbers of subject {command.subject!r} are used"
        raise CommandRejectedError(ErrorCode.POLICY_VIOLATION, message)
    kept = [
        each for each in subject.versions if each.number != number and not _is_superseded(table, command, each, schema)
    ]
    version = StoredVersion(number, schema.id, command.time_ms, command.is_deleted)
    versions = sorted([*kept, version], key=lambda each: each.number)
    next_version = max(subject.next_version, number + 1, command.next_version)
    changed = StoredSubject(command.subject, next_version, index, tuple(versions))
    _check_limits(table, changed, schema, is_new=is_new)
    next_id = max(table.next_id(context), schema.id + 1)
    if is_new:
        writer.add_schema(schema)
    writer.put_subject(changed)
    _put_context(writer, SchemaContext(context, next_id))
    return ApplyResult(value=combine_registration(schema.id, number))


def _check_revisions(table: SchemaTable, command: RegisterSchema) -> None:
    """Reject the command if the subject, its settings or a referenced schema have changed since they were checked."""
    _check_subject_revision(table, command.subject, command.subject_revision)
    if command.settings_revisions and command.settings_revisions != table.settings_revisions(command.subject):
        raise CommandRejectedError(STALE, f"the settings of subject {command.subject!r} have changed")
    context = split_subject(command.subject)[0]
    if len(command.referenced_ids) != len(command.references):
        raise CommandRejectedError(ErrorCode.INVALID_REQUEST, "there must be one schema id per reference")
    for reference, schema_id in zip(command.references, command.referenced_ids, strict=True):
        target = table.subjects.get(qualify_reference(context, reference.subject))
        version = None if target is None else target.find_version(reference.version)
        if version is None or version.schema_id != schema_id:
            message = f"version {reference.version} of {reference.subject!r} does not exist or has another schema"
            raise CommandRejectedError(STALE, message)


def _check_subject_revision(table: SchemaTable, name: str, expected: int) -> None:
    known = table.subjects.get(name)
    if expected not in (ANY_REVISION, 0 if known is None else known.revision):
        raise CommandRejectedError(STALE, f"subject {name!r} has changed")


def _find_or_build_schema(table: SchemaTable, command: RegisterSchema, context: str) -> tuple[StoredSchema, bool]:
    """Return the schema of a registration, and whether it is new."""
    content = SchemaContent(command.schema_type, command.text, command.references, command.properties)
    if command.schema_id == UNASSIGNED:
        known = table.find_by_content(context, command.guid, content)
        if known is not None:
            return known, False
        schema_id = table.next_id(context)
        if schema_id > SCHEMA_ID_MAX:
            raise CommandRejectedError(ErrorCode.POLICY_VIOLATION, f"all schema ids of context {context!r} are used")
    else:
        schema_id = command.schema_id
        known = table.schemas.get((context, schema_id))
        if known is not None:
            if known.content != content:
                message = f"Overwrite new schema with id {schema_id} in context {context} is not permitted."
                raise CommandRejectedError(ErrorCode.DUPLICATE_RESOURCE, message)
            return known, False
    return StoredSchema(context, schema_id, *content, command.guid), True


def _check_limits(table: SchemaTable, subject: StoredSubject, schema: StoredSchema, *, is_new: bool) -> None:
    if len(subject.versions) > SUBJECT_VERSIONS_MAX:
        message = f"subject {subject.name!r} has {SUBJECT_VERSIONS_MAX} versions already, including deleted ones"
        raise CommandRejectedError(ErrorCode.POLICY_VIOLATION, message)
    if subject.name not in table.subjects and len(table.subjects) >= SUBJECTS_MAX:
        raise CommandRejectedError(ErrorCode.POLICY_VIOLATION, f"there are {SUBJECTS_MAX} subjects already")
    if is_new and table.total_bytes + schema.size > SCHEMAS_BYTES_MAX:
        message = f"all schemas together would have more than {SCHEMAS_BYTES_MAX} bytes"
        raise CommandRejectedError(ErrorCode.POLICY_VIOLATION, message)
    _check_context_limit(table, schema.context)


def _check_context_limit(table: SchemaTable, context: str) -> None:
    if context not in table.contexts and len(table.contexts) >= SCHEMA_CONTEXTS_MAX:
        raise CommandRejectedError(
            ErrorCode.POLICY_VIOLATION, f"there have been {SCHEMA_CONTEXTS_MAX} contexts already"
        )


def _is_superseded(table: SchemaTable, command: RegisterSchema, version: StoredVersion, schema: StoredSchema) -> bool:
    """Return whether the new version replaces a soft-deleted one with the same schema, as in Confluent's registry."""
    return (
        command.version == UNASSIGNED
        and version.is_deleted
        and version.schema_id == schema.id
        and not table.find_referrers((command.subject, version.number))
    )


def delete_schema_versions(writer: ImageWriter, command: DeleteSchemaVersions, index: int) -> ApplyResult:
    """Apply a DeleteSchemaVersions command: delete all of the versions or none."""
    table = writer.image.schemas
    _check_subject_revision(table, command.subject, command.subject_revision)
    subject = table.subjects.get(command.subject)
    numbers = dict.fromkeys(command.versions)
    for number in numbers:
        version = None if subject is None else subject.find_version(number)
        if version is None or version.is_deleted != command.permanent:
            raise CommandRejectedError(STALE, f"version {number} of {command.subject!r} is not in the expected state")
        if _has_other_referrers(table, command, number, numbers):
            raise CommandRejectedError(STALE, f"schemas refer to version {number} of {command.subject!r}")
    assert subject is not None
    if command.permanent:
        _remove_versions(writer, subject, numbers, index)
    else:
        versions = [replace(each, is_deleted=True) if each.number in numbers else each for each in subject.versions]
        writer.put_subject(replace(subject, revision=index, versions=tuple(versions)))
    return ApplyResult(value=len(numbers))


def _has_other_referrers(
    table: SchemaTable, command: DeleteSchemaVersions, number: int, deleted: dict[int, None]
) -> bool:
    """Return whether a schema refers to the version that has versions which the command does not delete as well."""
    for key in table.find_referrers((command.subject, number)):
        for name, numbers in table.versions_with_schema(key).items():
            left = numbers if name != command.subject else tuple(each for each in numbers if each not in deleted)
            if left and (command.permanent or table.has_live_version(name, left)):
                return True
    return False


def _remove_versions(writer: ImageWriter, subject: StoredSubject, numbers: dict[int, None], index: int) -> None:
    table = writer.image.schemas
    left = tuple(each for each in subject.versions if each.number not in numbers)
    removed = [each for each in subject.versions if each.number in numbers]
    if left:
        # As in Confluent's registry, the numbers of the last versions are used again. Schema ids are not.
        next_version = left[-1].number + 1
        writer.put_subject(replace(subject, next_version=next_version, revision=index, versions=left))
    else:
        writer.remove_subject(subject.name)
        if subject.name in table.settings:
            writer.put_schema_settings(SchemaSettings(subject.name, "", "", index))
    for schema_id in dict.fromkeys(each.schema_id for each in removed):
        if not table.versions_with_schema((subject.context, schema_id)):
            writer.remove_schema((subject.context, schema_id))


def set_schema_config(writer: ImageWriter, command: SetSchemaConfig, index: int) -> ApplyResult:
    """Apply a SetSchemaConfig command."""
    table = writer.image.schemas
    known = table.settings.get(command.name)
    if command.revision not in (ANY_REVISION, 0 if known is None else known.revision):
        raise CommandRejectedError(STALE, f"the settings of {command.name!r} have changed")
    if command.config:
        _check_settings_limit(table, [command.name])
    mode = "" if known is None else known.mode
    if known is not None or command.config:
        writer.put_schema_settings(SchemaSettings(command.name, command.config, mode, index))
    return ApplyResult()


def set_schema_mode(writer: ImageWriter, command: SetSchemaMode, index: int) -> ApplyResult:
    """Apply a SetSchemaMode command."""
    table = writer.image.schemas
    names = list(dict.fromkeys(command.names))
    if command.requires_empty and any(map(table.has_versions, names)):
        raise CommandRejectedError(STALE, "there are versions in the scope of the mode")
    if command.mode:
        _check_settings_limit(table, names)
    for name in names:
        known = table.settings.get(name)
        config = "" if known is None else known.config
        if known is not None or command.mode:
            writer.put_schema_settings(SchemaSettings(name, config, command.mode, index))
    return ApplyResult()


def _check_settings_limit(table: SchemaTable, names: list[str]) -> None:
    if len(table.settings) + sum(name not in table.settings for name in names) > SCHEMA_SETTINGS_MAX:
        message = f"more than {SCHEMA_SETTINGS_MAX} subjects and contexts would have settings of their own"
        raise CommandRejectedError(ErrorCode.POLICY_VIOLATION, message)


def set_schema_context(writer: ImageWriter, command: SetSchemaContext, index: int) -> ApplyResult:
    """Apply a SetSchemaContext command. Deleting a context also deletes its settings."""
    table = writer.image.schemas
    if not command.name.startswith(".") or ":" in command.name or command.name == GLOBAL_CONTEXT:
        raise CommandRejectedError(ErrorCode.INVALID_REQUEST, f"{command.name!r} is not the name of a context")
    if command.is_deleted and table.count_subjects(command.name):
        raise CommandRejectedError(STALE, f"context {command.name!r} has subjects")
    _check_context_limit(table, command.name)
    next_id = max(table.next_id(command.name), command.next_id)
    _put_context(writer, SchemaContext(command.name, next_id, command.is_deleted))
    settings = join_subject(command.name, "")
    if command.is_deleted and settings != DEFAULT_SETTINGS and settings in table.settings:
        writer.put_schema_settings(SchemaSettings(settings, "", "", index))
    return ApplyResult()


def _put_context(writer: ImageWriter, context: SchemaContext) -> None:
    if context.name == DEFAULT_CONTEXT:
        context = replace(context, is_deleted=False)
    if writer.image.schemas.contexts.get(context.name) != context:
        writer.put_schema_context(context)


HANDLERS: CommandHandlers = {
    RegisterSchema: register_schema,
    DeleteSchemaVersions: delete_schema_versions,
    SetSchemaConfig: set_schema_config,
    SetSchemaMode: set_schema_mode,
    SetSchemaContext: set_schema_context,
}
