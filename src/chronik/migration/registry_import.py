"""Import of the schema registry: contexts, schemas, versions of subjects, configs and modes, with all ids kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final, NamedTuple

from chronik.limits import (
    SCHEMA_CONTEXTS_MAX,
    SCHEMA_SETTINGS_MAX,
    SCHEMAS_BYTES_MAX,
    SUBJECT_VERSIONS_MAX,
    SUBJECTS_MAX,
)
from chronik.metadata.commands.schemas import (
    ANY_REVISION,
    ImportableCommand,
    RegisterSchema,
    SetSchemaConfig,
    SetSchemaContext,
    SetSchemaMode,
    encode_importable_command,
)
from chronik.metadata.image import Image
from chronik.metadata.schemas import (
    SchemaContext,
    SchemaKey,
    SchemaSettings,
    SchemaTable,
    StoredSchema,
    StoredSubject,
    VersionKey,
)
from chronik.migration.source import MigrationError
from chronik.protocol.messages.import_schemas import ImportedRegistryCommand, ImportSchemasRequest
from chronik.wording import pluralize

COMMANDS_PER_REQUEST: Final = 500
"""The maximum number of commands per ImportSchemas request."""

REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024
"""The size of an ImportSchemas request in bytes from which the next command goes into another request."""


class RegistryMetadata(NamedTuple):
    """The schema registry of an import source."""

    contexts: dict[str, SchemaContext]
    settings: dict[str, SchemaSettings]
    schemas: Mapping[SchemaKey, StoredSchema]
    subjects: dict[str, StoredSubject]

    @property
    def is_empty(self) -> bool:
        return not (self.contexts or self.settings or self.subjects)

    @property
    def version_count(self) -> int:
        """Return the number of versions, including soft-deleted ones."""
        return sum(len(subject.versions) for subject in self.subjects.values())

    def __str__(self) -> str:
        subjects, versions = pluralize(len(self.subjects), "subject"), pluralize(self.version_count, "schema version")
        return f"{subjects}, {versions}, {pluralize(len(self.schemas), 'schema id')}"


def read_registry_metadata(image: Image) -> RegistryMetadata:
    """Return the schema registry in a metadata image."""
    table = image.schemas
    subjects = {name: table.subjects[name] for name in table.iter_names()}
    return RegistryMetadata(dict(table.contexts), dict(table.settings), dict(table.schemas), subjects)


def build_registry_requests(registry: RegistryMetadata, import_id: bytes) -> Iterator[ImportSchemasRequest]:
    """Yield the requests that import a schema registry. Each depends only on those before it.

    Raises:
        MigrationError: Schemas refer to each other in a cycle.
    """
    contexts = [SetSchemaContext(each.name, each.next_id, each.is_deleted) for each in registry.contexts.values()]
    yield from _split_into_requests(contexts, import_id)
    for versions in _iter_independent_versions(registry):
        yield from _split_into_requests((_build_registration(registry, *key) for key in versions), import_id)
    yield from _split_into_requests(_iter_settings_commands(registry), import_id)


def _split_into_requests(commands: Iterable[ImportableCommand], import_id: bytes) -> Iterator[ImportSchemasRequest]:
    request, size = ImportSchemasRequest(import_id=import_id), 0
    for command in commands:
        data = encode_importable_command(command)
        if request.commands and (len(request.commands) == COMMANDS_PER_REQUEST or size + len(data) > REQUEST_BYTES_MAX):
            yield request
            request, size = ImportSchemasRequest(import_id=import_id), 0
        request.commands.append(ImportedRegistryCommand(data=data))
        size += len(data)
    if request.commands:
        yield request


def _iter_independent_versions(registry: RegistryMetadata) -> Iterator[Sequence[VersionKey]]:
    """Yield groups of versions whose schemas refer only to versions of earlier groups."""
    sorter = TopologicalSorter[VersionKey]()
    for subject in registry.subjects.values():
        for version in subject.versions:
            schema = registry.schemas[subject.context, version.schema_id]
            sorter.add((subject.name, version.number), *schema.referenced_keys())
    try:
        sorter.prepare()
    except CycleError as error:
        raise MigrationError(f"schemas refer to each other in a cycle: {error.args[1]}") from error
    while sorter.is_active():
        ready = sorter.get_ready()
        yield ready
        sorter.done(*ready)


def _build_registration(registry: RegistryMetadata, name: str, number: int) -> RegisterSchema:
    subject = _get_subject(registry, name)
    version = subject.find_version(number)
    if version is None:
        raise MigrationError(f"a schema refers to version {number} of subject {name}, which does not exist")
    schema = registry.schemas[subject.context, version.schema_id]
    return RegisterSchema(
        name,
        schema.schema_type,
        schema.text,
        schema.references,
        schema.properties,
        schema.guid,
        tuple(_find_schema_id(registry, key) for key in schema.referenced_keys()),
        ANY_REVISION,
        (),
        version.time_ms,
        schema.id,
        number,
        subject.next_version,
        version.is_deleted,
    )


def _get_subject(registry: RegistryMetadata, name: str) -> StoredSubject:
    subject = registry.subjects.get(name)
    if subject is None:
        raise MigrationError(f"a schema refers to subject {name}, which does not exist")
    return subject


def _find_schema_id(registry: RegistryMetadata, key: VersionKey) -> int:
    version = _get_subject(registry, key[0]).find_version(key[1])
    if version is None:
        raise MigrationError(f"a schema refers to version {key[1]} of subject {key[0]}, which does not exist")
    return version.schema_id


def _iter_settings_commands(registry: RegistryMetadata) -> Iterator[ImportableCommand]:
    for each in registry.settings.values():
        if each.config:
            yield SetSchemaConfig(each.name, each.config, ANY_REVISION)
        if each.mode:
            yield SetSchemaMode((each.name,), each.mode)


def find_registry_obstacles(registry: RegistryMetadata, table: SchemaTable) -> list[str]:
    """Return one sentence for each reason why a cluster's schema registry cannot accept the import."""
    found = [
        f"schema id {known.id} of context {known.context} is already another schema"
        for key, schema in registry.schemas.items()
        if (known := table.schemas.get(key)) is not None and known.content != schema.content
    ]
    for name, subject in registry.subjects.items():
        target = table.subjects.get(name)
        for version in subject.versions if target is not None else ():
            known_version = None if target is None else target.find_version(version.number)
            if known_version is not None and known_version.schema_id != version.schema_id:
                found.append(f"version {version.number} of subject {name} already has another schema id")
    return found + list(_find_exceeded_limits(registry, table))


def _find_exceeded_limits(registry: RegistryMetadata, table: SchemaTable) -> Iterator[str]:
    new_bytes = sum(schema.size for key, schema in registry.schemas.items() if key not in table.schemas)
    for count, noun, limit in (
        (len(registry.subjects.keys() | table.subjects.keys()), "subjects", SUBJECTS_MAX),
        (len(registry.contexts.keys() | table.contexts.keys()), "contexts of schemas", SCHEMA_CONTEXTS_MAX),
        (len(registry.settings.keys() | table.settings.keys()), "settings of schemas", SCHEMA_SETTINGS_MAX),
        (table.total_bytes + new_bytes, "bytes of schemas", SCHEMAS_BYTES_MAX),
    ):
        if count > limit:
            yield f"the cluster would have {count:,} {noun}; the limit is {limit:,}"
    for name, subject in registry.subjects.items():
        target = table.subjects.get(name)
        numbers = {version.number for version in (*subject.versions, *(target.versions if target is not None else ()))}
        if len(numbers) > SUBJECT_VERSIONS_MAX:
            yield f"subject {name} would have {len(numbers):,} versions; the limit is {SUBJECT_VERSIONS_MAX:,}"


def find_settings_conflicts(registry: RegistryMetadata, table: SchemaTable) -> list[str]:
    """Return one sentence for each config or mode of the source that differs from one of the cluster, which stays."""
    found = []
    for name, settings in registry.settings.items():
        known = table.settings.get(name)
        if known is None:
            continue
        if settings.config and known.config not in ("", settings.config):
            found.append(f"{_describe_scope(name)} already has another config")
        if settings.mode and known.mode not in ("", settings.mode):
            found.append(f"{_describe_scope(name)} already has mode {known.mode}")
    return found


def find_missing_registry(registry: RegistryMetadata, table: SchemaTable) -> list[str]:
    """Return one sentence for each entry of the source's schema registry that the cluster lacks."""
    found = [
        f"schema id {key[1]} of context {key[0]} is missing" for key in registry.schemas if key not in table.schemas
    ]
    for name, subject in registry.subjects.items():
        target = table.subjects.get(name)
        for version in subject.versions:
            known = None if target is None else target.find_version(version.number)
            if known is None or known.schema_id != version.schema_id:
                found.append(f"version {version.number} of subject {name} is missing")
        if target is not None and target.next_version < subject.next_version:
            found.append(f"the next version of subject {name} is {target.next_version}, not {subject.next_version}")
    for name, context in registry.contexts.items():
        if table.next_id(name) < context.next_id:
            found.append(f"the next schema id of context {name} is {table.next_id(name)}, not {context.next_id}")
    for name, settings in registry.settings.items():
        known_settings = table.settings.get(name)
        if settings.config and (known_settings is None or not known_settings.config):
            found.append(f"the config of {_describe_scope(name)} is missing")
        if settings.mode and (known_settings is None or not known_settings.mode):
            found.append(f"the mode of {_describe_scope(name)} is missing")
    return found


def _describe_scope(name: str) -> str:
    """Return a description of the scope of settings: a subject, a context or the default."""
    if not name:
        return "the default context"
    return f"context {name}" if name.startswith(":.") and name.endswith(":") else f"subject {name}"
