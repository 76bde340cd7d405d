"""The operations of the schema registry, with the semantics of Confluent's REST API.

Any node serves them. A node parses and compares schemas before it proposes a command, so that applying the command is
cheap. Reads never miss a change that any node has acknowledged: an answer that a stale image could have caused is
confirmed with a majority of the cluster first.

Names of subjects may contain a context (`:.context:subject`). They are normalized first; results have normalized names.
Every method raises a `RegistryError` for an error that the client should see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from chronik.metadata.stores.store import MetadataStore
from chronik.registry.entities import (
    Config,
    ConfigChange,
    ContextId,
    SchemaRequest,
    SchemaString,
    SubjectSchema,
    SubjectVersion,
)

SubjectFilter = Callable[[str], bool]
"""A predicate on normalized names of subjects: whether the caller may see the subject."""


def accept_all(subject: str) -> bool:
    """Return True: the subject filter of callers that may see all subjects."""
    return True


class SchemaRegistry:
    """The schema registry of a cluster, as served by one node.

    Methods that take a filter `visible` handle subjects that it rejects as if they did not exist. Methods without it
    access only the subject that they name, or its alias in the case of reads: see `resolve_alias`.
    """

    def __init__(self, store: MetadataStore, *, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms

    async def close(self) -> None:
        """Stop the threads that parse schemas."""
        raise NotImplementedError

    # --- schemas of subjects ---

    async def register(self, subject: str, request: SchemaRequest, *, normalize: bool = False) -> SubjectSchema:
        """Register a schema as a new version of a subject, and return the version.

        If a version with the same schema exists, return that one. The caller renders it in the wanted format with
        `format_schema`.
        """
        raise NotImplementedError

    async def look_up(
        self, subject: str, request: SchemaRequest, *, normalize: bool = False, deleted: bool = False, format: str = ""
    ) -> SubjectSchema:
        """Return the version of the subject that has the schema in the request."""
        raise NotImplementedError

    async def get_version(
        self, subject: str, version: str | int, *, deleted: bool = False, format: str = "", reference_format: str = ""
    ) -> SubjectSchema:
        """Return a version of a subject. The version is a number, "latest" or -1."""
        raise NotImplementedError

    async def get_latest_with_metadata(
        self, subject: str, properties: Mapping[str, str], *, deleted: bool = False, format: str = ""
    ) -> SubjectSchema:
        """Return the latest version of a subject whose metadata has all the properties."""
        raise NotImplementedError

    async def list_versions(
        self, subject: str, *, deleted: bool = False, deleted_only: bool = False, offset: int = 0, limit: int = -1
    ) -> list[int]:
        """Return the numbers of a subject's versions."""
        raise NotImplementedError

    async def list_referencing_ids(
        self, subject: str, version: str | int, *, deleted: bool = False, offset: int = 0, limit: int = -1
    ) -> list[int]:
        """Return the ids of the schemas that refer to a version of a subject."""
        raise NotImplementedError

    async def delete_version(self, subject: str, version: str | int, *, permanent: bool = False) -> int:
        """Delete a version of a subject, and return its number.

        A version must be soft-deleted before it is deleted permanently.
        """
        raise NotImplementedError

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete a subject with its config and mode, and return the numbers of the deleted versions."""
        raise NotImplementedError

    async def check_compatibility(
        self, subject: str, request: SchemaRequest, version: str | int | None = None, *, normalize: bool = False
    ) -> list[str]:
        """Return why a schema is incompatible with a subject; empty if it is compatible.

        If `version` is None, compare with the versions with which a registration would compare. An invalid schema
        raises UnprocessableSchemaError, which the caller reports as a message if the client asks for messages.
        """
        raise NotImplementedError

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
    ) -> SchemaString:
        """Return the schema with the id.

        The id is looked up in the context of `subject`, or in all contexts if the context does not have it and
        `subject` names no context.
        """
        raise NotImplementedError

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
        raise NotImplementedError

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
        raise NotImplementedError

    async def get_by_guid(self, guid: str, *, format: str = "", visible: SubjectFilter = accept_all) -> SchemaString:
        """Return the schema with the GUID."""
        raise NotImplementedError

    async def list_ids_of_guid(self, guid: str, *, visible: SubjectFilter = accept_all) -> list[ContextId]:
        """Return the contexts and ids of the schema with the GUID."""
        raise NotImplementedError

    async def list_subjects(
        self,
        prefix: str = ":*:",
        *,
        deleted: bool = False,
        deleted_only: bool = False,
        offset: int = 0,
        limit: int = -1,
        visible: SubjectFilter = accept_all,
    ) -> list[str]:
        """Return the names of the subjects that start with a prefix; the prefix `:*:` matches all contexts."""
        raise NotImplementedError

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

        Responses are limited to SCHEMAS_PER_RESPONSE_MAX versions: clients continue with `offset`.
        """
        raise NotImplementedError

    async def list_contexts(
        self, prefix: str = "", *, offset: int = 0, limit: int = -1, visible: SubjectFilter = accept_all
    ) -> list[str]:
        """Return the names of the contexts that have subjects, and of the default context `.`."""
        raise NotImplementedError

    async def delete_context(self, context: str) -> None:
        """Delete a context without subjects, with its config and mode."""
        raise NotImplementedError

    def list_types(self) -> list[str]:
        """Return the supported schema types."""
        raise NotImplementedError

    async def format_schema(self, found: SubjectSchema, format: str) -> SubjectSchema:
        """Return the version with its schema rendered in a format of its type, such as `resolved` for Avro."""
        raise NotImplementedError

    async def resolve_alias(self, subject: str) -> str:
        """Return the normalized name of the subject that reads of `subject` access: its alias, if it has one.

        A caller authorizes reads for this name.
        """
        raise NotImplementedError

    # --- configs and modes ---

    async def get_config(self, subject: str | None = None, *, default_to_global: bool = False) -> Config:
        """Return the config of a subject or context, or of the registry if `subject` is None.

        With `default_to_global`, return the effective config.
        """
        raise NotImplementedError

    async def update_config(self, subject: str | None, change: ConfigChange) -> Config:
        """Change the config of a subject, a context or the registry, and return the new config."""
        raise NotImplementedError

    async def delete_config(self, subject: str | None = None) -> Config:
        """Delete the config of a subject, a context or the registry, and return the deleted config."""
        raise NotImplementedError

    async def get_mode(self, subject: str | None = None, *, default_to_global: bool = False) -> str:
        """Return the mode of a subject or context, or of the registry if `subject` is None."""
        raise NotImplementedError

    async def set_mode(self, subject: str | None, mode: str, *, force: bool = False) -> str:
        """Set the mode of a subject, a context or the registry, and return it.

        Mode IMPORT requires that no schemas exist there, unless `force` is set.
        """
        raise NotImplementedError

    async def delete_mode(self, subject: str | None = None, *, recursive: bool = False) -> str | None:
        """Delete the mode of a subject, a context or the registry, and return the deleted mode.

        With `recursive`, also delete the modes of all subjects of the context.
        """
        raise NotImplementedError
