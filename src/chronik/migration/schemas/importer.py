"""Imports the content of a schema registry into another one, and keeps ids and versions.

The importer registers only what is missing, so an interrupted import is continued by repeating it. While it registers
versions of a subject, the subject's mode is IMPORT, in which the registry accepts ids and checks no compatibility.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from chronik.client.registry import (
    MODE_IMPORT,
    VERSION_SOFT_DELETED,
    RegistryAdminClient,
    RegistryAdminError,
    SchemaVersion,
    get_context,
)
from chronik.migration.schemas.exporter import GLOBAL, ProgressCallback, map_concurrently, read_subject
from chronik.migration.schemas.registry_export import (
    RegistryExport,
    SchemaExportError,
    SchemaKey,
    has_equal_content,
    sort_by_references,
)
from chronik.wording import pluralize

CONFLICTS_SHOWN_MAX: Final = 20


class SchemaImportResult(NamedTuple):
    """What an import has changed."""

    registered: int
    present: int
    """Versions that the registry had already."""
    deleted: int
    """Versions that were soft-deleted, as in the export."""
    configs: int
    modes: int


class SchemaImporter:
    """The import of an export into a registry."""

    def __init__(
        self,
        export: RegistryExport,
        client: RegistryAdminClient,
        progress: ProgressCallback,
        *,
        with_global: bool = True,
    ) -> None:
        """Read the subjects that the registry has already.

        Without `with_global`, the global config and those of contexts are not changed.
        """
        self._export = export
        self._client = client
        self._progress = progress
        self._with_global = with_global
        self._subjects = {
            subject.name: subject
            for subject in map_concurrently(lambda name: read_subject(client, name), self._export.subjects)
        }
        existing = [schema for subject in self._subjects.values() for schema in subject.schemas]
        self._existing = {(schema.subject, schema.version): schema for schema in existing}
        self.missing = [schema for schema in export.schemas if _key(schema) not in self._existing]

    def find_conflicts(self) -> list[str]:
        """Return why the export cannot be imported, one sentence per version or id; empty if it can."""
        conflicts = []
        for schema in self._export.schemas:
            found = self._existing.get(_key(schema))
            if found is not None and not self._is_same(schema, found):
                conflicts.append(f"{_describe(schema)} exists with another schema or id ({found.id})")
        by_id = {(schema.context, schema.id): schema for schema in self.missing}

        def find_by_id(key: tuple[str, int]) -> SchemaVersion | None:
            return self._client.find_schema_by_id(key[1], key[0])

        for (key, schema), found in zip(by_id.items(), map_concurrently(find_by_id, by_id), strict=True):
            if found is not None and not has_equal_content(schema, found) and not self._is_same_text(schema, key[1]):
                conflicts.append(f"{_describe(schema)} has id {key[1]}, which belongs to another schema")
        return conflicts

    def _is_same(self, schema: SchemaVersion, found: SchemaVersion) -> bool:
        if schema.id != found.id:
            return False
        return has_equal_content(schema, found) or self._is_same_text(schema, schema.id)

    def _is_same_text(self, schema: SchemaVersion, schema_id: int) -> bool:
        """Return whether the registry regards a text as the schema with the id, such as in another notation."""
        try:
            found = self._client.find_registered(schema)
        except RegistryAdminError as error:
            if not error.error_code:
                raise
            return False
        return found is not None and found.id == schema_id

    def run(self) -> SchemaImportResult:
        """Import what is missing, and verify the result.

        Raises:
            SchemaExportError: The registry has other schemas under the same ids or versions, or the result differs.
            RegistryAdminError: The registry rejects a request. The import can be repeated.
        """
        if conflicts := self.find_conflicts():
            raise SchemaExportError(_summarize(f"{self._client.url} has conflicting schemas", conflicts))
        imported = sorted({schema.subject for schema in self.missing})
        for _ in map_concurrently(lambda name: self._client.set_mode(name, MODE_IMPORT, force=True), imported):
            self._progress(f"preparing {pluralize(len(imported), 'subject')}")
        try:
            self._register_missing()
            deleted = self._delete_versions()
        finally:
            modes = self._set_modes(imported)
        configs = self._set_configs()
        if differences := self.find_differences():
            raise SchemaExportError(_summarize("the imported schemas differ from the export", differences))
        present = len(self._export.schemas) - len(self.missing)
        return SchemaImportResult(len(self.missing), present, deleted, configs, modes)

    def _register_missing(self) -> None:
        done = 0
        for group in sort_by_references(self.missing):
            by_subject: dict[str, list[SchemaVersion]] = defaultdict(list)
            for schema in sorted(group, key=_key):
                by_subject[schema.subject].append(schema)
            for registered in map_concurrently(self._register, by_subject.values()):
                done += registered
                self._progress(f"registered {done:,} of {pluralize(len(self.missing), 'version')}")

    def _register(self, schemas: Iterable[SchemaVersion]) -> int:
        count = 0
        for schema in schemas:
            try:
                found = self._client.register(schema, keep_identity=True)
            except RegistryAdminError as error:
                message = f"{_describe(schema)} with id {schema.id} was rejected: {error}"
                raise RegistryAdminError(message, error.status, error.error_code) from error
            if found != schema.id:
                raise SchemaExportError(f"{_describe(schema)} was registered with id {found} instead of {schema.id}")
            count += 1
        return count

    def _delete_versions(self) -> int:
        """Soft-delete versions as in the export, those that refer to others first. Return how many were deleted."""
        groups = sort_by_references(schema for schema in self._export.schemas if schema.deleted)
        count = 0
        for group in reversed(groups):
            pending = [
                schema for schema in group if (found := self._existing.get(_key(schema))) is None or not found.deleted
            ]
            for _ in map_concurrently(self._delete, pending):
                count += 1
                self._progress(f"soft-deleted {pluralize(count, 'version')}")
        return count

    def _delete(self, schema: SchemaVersion) -> None:
        try:
            self._client.delete_version(schema.subject, schema.version)
        except RegistryAdminError as error:
            if error.error_code != VERSION_SOFT_DELETED:
                raise

    def _set_modes(self, imported: list[str]) -> int:
        """Give subjects the modes of the export, or those that they had. Return the number of modes of the export."""

        def set_mode(name: str) -> int:
            subject = self._subjects[name]
            wanted = self._export.modes.get(name)
            before = subject.mode if subject.mode != MODE_IMPORT else None  # left by an interrupted import
            if wanted is not None:
                self._client.set_mode(name, wanted, force=True)
                return 1
            if before is not None:
                self._client.set_mode(name, before, force=True)
            else:
                self._client.delete_mode(name)
            return 0

        left = [name for name, subject in self._subjects.items() if subject.mode == MODE_IMPORT]
        changed = [
            name
            for name, mode in self._export.modes.items()
            if name in self._subjects and self._subjects[name].mode != mode
        ]
        return sum(map_concurrently(set_mode, sorted({*imported, *left, *changed})))

    def _set_configs(self) -> int:
        def set_config(name: str) -> int:
            config = self._export.configs[name]
            if self._client.find_config(name or None) == config:
                return 0
            self._client.set_config(name or None, config)
            return 1

        names = (name for name in self._export.configs if self._with_global or not is_global(name))
        return sum(map_concurrently(set_config, sorted(names)))

    def find_differences(self) -> list[str]:
        """Return how the registry differs from the export, one sentence per version, config or mode."""
        names = self._export.subjects
        differences = []
        by_subject: dict[str, list[SchemaVersion]] = defaultdict(list)
        for schema in self._export.schemas:
            by_subject[schema.subject].append(schema)
        found = map_concurrently(lambda name: read_subject(self._client, name), names)
        for number, subject in enumerate(found, 1):
            self._progress(f"verified {number:,} of {pluralize(len(names), 'subject')}")
            versions = {each.version: each for each in subject.schemas}
            for schema in by_subject[subject.name]:
                differences += self._compare(schema, versions.get(schema.version))
            wanted_mode = self._export.modes.get(subject.name)
            if wanted_mode is not None and subject.mode != wanted_mode:
                differences.append(f"subject {subject.name} has mode {subject.mode}, not {wanted_mode}")
            wanted_config = self._export.configs.get(subject.name)
            if wanted_config is not None and subject.config != wanted_config:
                differences.append(f"subject {subject.name} has config {subject.config}, not {wanted_config}")
        return differences

    def _compare(self, schema: SchemaVersion, found: SchemaVersion | None) -> list[str]:
        if found is None:
            return [f"{_describe(schema)} is missing"]
        if found.id != schema.id:
            return [f"{_describe(schema)} has id {found.id}, not {schema.id}"]
        if not self._is_same(schema, found):
            return [f"{_describe(schema)} has another schema"]
        if found.deleted != schema.deleted:
            return [f"{_describe(schema)} is {'' if found.deleted else 'not '}deleted"]
        return []


def is_global(name: str) -> bool:
    """Return whether a name in an export is that of the registry or a context, and not of a subject."""
    return name == GLOBAL or name == f":{get_context(name)}:"


def _key(schema: SchemaVersion) -> SchemaKey:
    return schema.subject, schema.version


def _describe(schema: SchemaVersion) -> str:
    return f"version {schema.version} of subject {schema.subject}"


def _summarize(what: str, found: list[str]) -> str:
    shown = "; ".join(found[:CONFLICTS_SHOWN_MAX])
    more = f"; {len(found) - CONFLICTS_SHOWN_MAX} more" if len(found) > CONFLICTS_SHOWN_MAX else ""
    return f"{what}: {shown}{more}"
