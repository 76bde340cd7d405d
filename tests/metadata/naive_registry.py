"""A model of the schema registry that recomputes everything from a list of versions."""

from __future__ import annotations

from dataclasses import dataclass, field

from chronik.metadata.commands.schemas import (
    DeleteSchemaVersions,
    RegisterSchema,
    SetSchemaConfig,
    SetSchemaContext,
    SetSchemaMode,
)
from chronik.metadata.schemas import SchemaTable

RegistryCommand = RegisterSchema | DeleteSchemaVersions | SetSchemaConfig | SetSchemaMode | SetSchemaContext


def find_context(name: str) -> str:
    return name[1:].split(":")[0] if name.startswith(":.") else "."


@dataclass
class NaiveVersion:
    subject: str
    number: int
    id: int
    content: tuple[object, ...]
    references: list[tuple[str, int]]
    is_deleted: bool = False

    @property
    def schema(self) -> tuple[str, int]:
        return find_context(self.subject), self.id


@dataclass
class NaiveRegistry:
    """The registry as a list of versions, without indexes."""

    versions: list[NaiveVersion] = field(default_factory=list)
    revisions: dict[str, int] = field(default_factory=dict)
    next_versions: dict[str, int] = field(default_factory=dict)
    next_ids: dict[str, int] = field(default_factory=dict)
    deleted_contexts: set[str] = field(default_factory=set)
    settings: dict[str, tuple[str, str, int]] = field(default_factory=dict)

    def apply(self, command: RegistryCommand, index: int) -> object:
        """Apply a command and return its outcome: None if it is rejected."""
        match command:
            case RegisterSchema():
                return self._register(command, index)
            case DeleteSchemaVersions():
                return self._delete(command, index)
            case SetSchemaConfig(name, config, revision):
                _, mode, known = self.settings.get(name, ("", "", 0))
                return self._set(name, config, mode, index) if revision in (-1, known) else None
            case SetSchemaMode(names, mode, requires_empty):
                if requires_empty and any(
                    self._is_in_scope(each.subject, name) for name in names for each in self.versions
                ):
                    return None
                for name in names:
                    self._set(name, self.settings.get(name, ("", "", 0))[0], mode, index)
                return True
            case SetSchemaContext(name, next_id, is_deleted):
                if is_deleted and any(find_context(each.subject) == name for each in self.versions):
                    return None
                self.next_ids[name] = max(self.next_ids.get(name, 1), next_id)
                self.deleted_contexts.discard(name)
                if is_deleted and name != ".":
                    self.deleted_contexts.add(name)
                    self.settings.pop(f":{name}:", None)
                return True

    def _set(self, name: str, config: str, mode: str, index: int) -> bool:
        if config or mode:
            self.settings[name] = (config, mode, index)
        else:
            self.settings.pop(name, None)
        return True

    def _is_in_scope(self, subject: str, name: str) -> bool:
        if name in ("", ":.__GLOBAL:"):
            return True
        return subject == name or (name.endswith(":") and subject.startswith(name))

    def _register(self, command: RegisterSchema, index: int) -> tuple[int, int] | None:
        subject, context = command.subject, find_context(command.subject)
        if command.subject_revision not in (-1, self.revisions.get(subject, 0)):
            return None
        references = []
        for reference, schema_id in zip(command.references, command.referenced_ids, strict=True):
            name = reference.subject
            if context != "." and find_context(name) == ".":
                name = f":{context}:{name}"
            if not any(
                (each.subject, each.number, each.id) == (name, reference.version, schema_id) for each in self.versions
            ):
                return None
            references.append((name, reference.version))
        content = (command.schema_type, command.text, command.references, command.properties)
        same_context = [each for each in self.versions if find_context(each.subject) == context]
        if command.schema_id >= 0:
            schema_id = command.schema_id
            if any(each.id == schema_id and each.content != content for each in same_context):
                return None
        else:
            known = [each.id for each in same_context if each.content == content]
            schema_id = min(known) if known else self.next_ids.get(context, 1)
        number = command.version if command.version >= 0 else self.next_versions.get(subject, 1)
        for each in self.versions:
            if (each.subject, each.number) == (subject, number):
                if each.id != schema_id:
                    return None
                if command.is_deleted or not each.is_deleted:
                    return schema_id, number
        self.versions = [
            each
            for each in self.versions
            if each.subject != subject
            or not (
                each.number == number
                or (
                    command.version < 0
                    and each.is_deleted
                    and each.id == schema_id
                    and not any((subject, each.number) in other.references for other in self.versions)
                )
            )
        ]
        self.versions.append(NaiveVersion(subject, number, schema_id, content, references, command.is_deleted))
        self.revisions[subject] = index
        self.next_versions[subject] = max(self.next_versions.get(subject, 1), number + 1, command.next_version)
        self.next_ids[context] = max(self.next_ids.get(context, 1), schema_id + 1)
        self.deleted_contexts.discard(context)
        return schema_id, number

    def _delete(self, command: DeleteSchemaVersions, index: int) -> int | None:
        subject, numbers = command.subject, set(command.versions)
        if command.subject_revision not in (-1, self.revisions.get(subject, 0)):
            return None
        chosen = [each for each in self.versions if each.subject == subject and each.number in numbers]
        if len(chosen) < len(numbers) or any(each.is_deleted != command.permanent for each in chosen):
            return None
        others = [each for each in self.versions if each not in chosen]
        for other in others:
            counts = command.permanent or not other.is_deleted
            if counts and any((subject, number) in other.references for number in numbers):
                return None
        if not command.permanent:
            for each in chosen:
                each.is_deleted = True
            self.revisions[subject] = index
            return len(chosen)
        self.versions = others
        left = [each.number for each in others if each.subject == subject]
        if left:
            self.revisions[subject] = index
            self.next_versions[subject] = max(left) + 1
        else:
            del self.revisions[subject], self.next_versions[subject]
            self.settings.pop(subject, None)
        return len(chosen)

    def assert_equals(self, table: SchemaTable) -> None:
        """Check the records and the indexes of the image."""
        found = {
            (name, each.number): (each.schema_id, each.is_deleted)
            for name, subject in table.subjects.items()
            for each in subject.versions
        }
        assert found == {(each.subject, each.number): (each.id, each.is_deleted) for each in self.versions}
        assert {name: each.revision for name, each in table.subjects.items()} == self.revisions
        assert {name: each.next_version for name, each in table.subjects.items()} == self.next_versions
        assert {key: tuple(each.content) for key, each in table.schemas.items()} == {
            each.schema: each.content for each in self.versions
        }
        assert {each.name: (each.config, each.mode, each.revision) for each in table.settings.values()} == self.settings
        assert {name: each.next_id for name, each in table.contexts.items()} == self.next_ids
        assert {name for name, each in table.contexts.items() if each.is_deleted} == self.deleted_contexts
        assert list(table.iter_names()) == sorted(self.revisions)
        assert table.total_bytes == sum(each.size for each in table.schemas.values())
        for key in table.schemas:
            assert dict(table.versions_with_schema(key)) == {
                subject: tuple(
                    sorted(each.number for each in self.versions if (each.subject, each.schema) == (subject, key))
                )
                for subject in {each.subject for each in self.versions if each.schema == key}
            }
            assert table.is_schema_live(key) == any(
                each.schema == key and not each.is_deleted for each in self.versions
            )
        for target in {reference for each in self.versions for reference in each.references}:
            assert set(table.find_referrers(target)) == {
                each.schema for each in self.versions if target in each.references
            }
