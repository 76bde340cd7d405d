"""A metadata image with a schema registry, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import md5
from typing import Final

from chronik.metadata.commands.schemas import (
    UNASSIGNED,
    DeleteSchemaVersions,
    ReferencedVersion,
    RegisterSchema,
    SetSchemaConfig,
)
from chronik.metadata.schemas import SchemaTable, qualify_reference, split_registration, split_subject
from tests.metadata.metadata_world import MetadataWorld

AVRO: Final = 1
JSON: Final = 2
PROTOBUF: Final = 3
NOW_MS: Final = 1_700_000_000_000


class RegistryWorld(MetadataWorld):
    """A metadata image whose commands are proposed by a node that has seen its latest state."""

    @property
    def table(self) -> SchemaTable:
        return self.image.schemas

    def subject_revision(self, name: str) -> int:
        known = self.table.subjects.get(name)
        return 0 if known is None else known.revision

    def build_registration(
        self,
        subject: str,
        text: str,
        *,
        references: Iterable[tuple[str, int]] = (),
        properties: str = "",
        schema_id: int = UNASSIGNED,
        version: int = UNASSIGNED,
        schema_type: int = AVRO,
    ) -> RegisterSchema:
        """Return the command for a registration. References are given by subject and version."""
        referenced = tuple(ReferencedVersion(f"name of {name}", name, number) for name, number in references)
        context = split_subject(subject)[0]
        ids = []
        for each in referenced:
            target = self.table.subjects.get(qualify_reference(context, each.subject))
            found = None if target is None else target.find_version(each.version)
            ids.append(0 if found is None else found.schema_id)
        guid = md5(repr((schema_type, text, referenced, properties)).encode(), usedforsecurity=False).digest()
        return RegisterSchema(
            subject,
            schema_type,
            text,
            referenced,
            properties,
            guid,
            tuple(ids),
            self.subject_revision(subject),
            self.table.settings_revisions(subject),
            NOW_MS,
            schema_id,
            version,
        )

    def register_schema(
        self,
        subject: str,
        text: str,
        *,
        references: Iterable[tuple[str, int]] = (),
        properties: str = "",
        schema_id: int = UNASSIGNED,
        version: int = UNASSIGNED,
        schema_type: int = AVRO,
    ) -> tuple[int, int]:
        """Register a schema. Return its id and its version."""
        command = self.build_registration(
            subject,
            text,
            references=references,
            properties=properties,
            schema_id=schema_id,
            version=version,
            schema_type=schema_type,
        )
        return split_registration(self.accept(command).value)

    def build_deletion(self, subject: str, *versions: int, permanent: bool = False) -> DeleteSchemaVersions:
        return DeleteSchemaVersions(subject, versions, permanent, self.subject_revision(subject))

    def delete(self, subject: str, *versions: int) -> None:
        """Soft-delete versions."""
        assert self.accept(self.build_deletion(subject, *versions)).value == len(versions)

    def destroy(self, subject: str, *versions: int) -> None:
        """Delete versions permanently that are soft-deleted."""
        assert self.accept(self.build_deletion(subject, *versions, permanent=True)).value == len(versions)

    def configure(self, name: str, config: str) -> None:
        settings = self.table.settings.get(name)
        self.accept(SetSchemaConfig(name, config, 0 if settings is None else settings.revision))

    def versions(self, subject: str) -> dict[int, int]:
        """Return the schema ids of the live versions of a subject by version number."""
        return {each.number: each.schema_id for each in self.table.subjects[subject].live_versions}
