"""The operations of the schema registry's REST API: authorization, and conversion of requests and results.

Each function authorizes the client before it accesses the registry, so that errors do not reveal which subjects exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import chronik
from chronik.console.registry.models import CompatibilityResult, ModeChange, Registration
from chronik.metadata.schemas import join_subject, qualify_reference, split_subject
from chronik.protocol.permissions import AclOperation
from chronik.registry.access import RegistryAccess
from chronik.registry.entities import (
    Config,
    ContextId,
    RegistryConfigChange,
    SchemaRequest,
    SchemaString,
    SubjectSchema,
    SubjectVersion,
)
from chronik.registry.errors import IncompatibleSchemaError, InvalidModeError, UnprocessableSchemaError
from chronik.registry.schema import SchemaType
from chronik.registry.service import ResolvedSubject, SchemaRegistry

SERIALIZED: Final = "serialized"
"""The format of Protobuf schemas as a FileDescriptorProto in base64."""

CLUSTER_NAME: Final = "schema-registry"
"""The id of the registry in its cluster, as in Confluent's registry with default configs."""


class RegistryCall(NamedTuple):
    """A decoded request to the schema registry, and what its operation accesses."""

    registry: SchemaRegistry
    access: RegistryAccess
    path: Mapping[str, str]
    """The path parameters by name."""
    query: Any
    """An instance of the operation's query type."""
    body: Any
    """An instance of the operation's body type, or None."""
    cluster_id: str

    @property
    def subject(self) -> str:
        """The subject in the path."""
        return self.path["subject"]

    async def resolve_subject(self, operation: AclOperation = AclOperation.READ) -> ResolvedSubject:
        """Return the subject in the path, or the subject of its alias, for a read.

        Raises:
            AccessDeniedError: The client may not perform the operation on it.
        """
        resolved = await self.registry.resolve_alias(self.subject)
        if not self.access.is_authorized(operation, resolved):
            raise self.access.deny(operation, self.subject)
        return resolved

    def require_references(self, subject: str) -> None:
        """Raise AccessDeniedError unless the client may read the subjects to which the schema in the body refers."""
        context, _ = split_subject(subject)
        for reference in self.body.references or ():
            self.require_read(qualify_reference(context, reference.subject))

    def require_read(self, subject: str) -> None:
        """Raise AccessDeniedError unless the client may read the subject."""
        self.access.require(AclOperation.READ, subject)


def _get_format_of_request(request: SchemaRequest) -> str:
    """Return the format of a response with the schema that the client sent; empty for the stored text.

    Confluent's clients for Python and C send Protobuf descriptors in base64, cache the schema of the response, and
    decode it as a descriptor.
    """
    is_text = request.schema_type != SchemaType.PROTOBUF or ";" in request.schema or "{" in request.schema
    return "" if is_text else SERIALIZED


async def show_root(call: RegistryCall) -> dict[str, Any]:
    return {}


# Subjects and versions


async def list_subjects(call: RegistryCall) -> list[str]:
    query = call.query
    return await call.registry.list_subjects(
        query.subject_prefix,
        deleted=query.deleted,
        deleted_only=query.deleted_only,
        offset=query.offset,
        limit=query.limit,
        visible=call.access.build_filter(AclOperation.DESCRIBE),
    )


async def look_up_schema(call: RegistryCall) -> SubjectSchema:
    subject = await call.resolve_subject()
    call.require_references(subject)
    query = call.query
    format = query.format or _get_format_of_request(call.body)
    return await call.registry.look_up(
        subject,
        call.body,
        normalize=query.normalize,
        deleted=query.deleted,
        format=format,
        require_read=call.require_read,
    )


async def delete_subject(call: RegistryCall) -> list[int]:
    call.access.require(AclOperation.DELETE, call.subject)
    return await call.registry.delete_subject(call.subject, permanent=call.query.permanent)


async def get_latest_with_metadata(call: RegistryCall) -> SubjectSchema:
    subject = await call.resolve_subject()
    query = call.query
    properties = dict(zip(query.key, query.value, strict=False))
    return await call.registry.get_latest_with_metadata(
        subject, properties, deleted=query.deleted, format=query.format, require_read=call.require_read
    )


async def list_versions(call: RegistryCall) -> list[int]:
    subject = await call.resolve_subject(AclOperation.DESCRIBE)
    query = call.query
    return await call.registry.list_versions(
        subject, deleted=query.deleted, deleted_only=query.deleted_only, offset=query.offset, limit=query.limit
    )


async def register_schema(call: RegistryCall) -> Registration:
    call.access.require(AclOperation.WRITE, call.subject)
    call.require_references(call.subject)
    is_reader = call.access.is_authorized(AclOperation.READ, call.subject)
    if not is_reader and not call.body.schema.strip():  # It stands for the schema of the latest version.
        raise call.access.deny(AclOperation.READ, call.subject)
    try:
        found = await call.registry.register(call.subject, call.body, normalize=call.query.normalize)
    except IncompatibleSchemaError:
        if is_reader:
            raise
        # The details quote an earlier schema.
        raise IncompatibleSchemaError(
            f'Schema being registered is incompatible with an earlier schema for subject "{call.subject}"'
        ) from None
    if format := call.query.format or _get_format_of_request(call.body):
        found = await call.registry.format_schema(found, format, call.require_read)
    return Registration(
        id=found.id,
        version=found.version,
        guid=found.guid,
        schema=found.schema,
        schema_type=found.schema_type,
        references=found.references,
        # Those of the latest version are inherited.
        metadata=found.metadata if is_reader or call.body.metadata is not None else None,
        rule_set=found.rule_set if is_reader or call.body.rule_set is not None else None,
        ts=found.ts,
    )


async def get_version(call: RegistryCall) -> SubjectSchema:
    subject = await call.resolve_subject()
    query = call.query
    return await call.registry.get_version(
        subject,
        call.path["version"],
        deleted=query.deleted,
        format=query.format,
        reference_format=query.reference_format,
        require_read=call.require_read,
    )


async def delete_version(call: RegistryCall) -> int:
    call.access.require(AclOperation.DELETE, call.subject)
    return await call.registry.delete_version(call.subject, call.path["version"], permanent=call.query.permanent)


async def get_schema_of_version(call: RegistryCall) -> str:
    subject = await call.resolve_subject()
    query = call.query
    found = await call.registry.get_version(
        subject, call.path["version"], deleted=query.deleted, format=query.format, require_read=call.require_read
    )
    return found.schema


async def list_referencing_ids(call: RegistryCall) -> list[int]:
    subject = await call.resolve_subject(AclOperation.DESCRIBE)
    query = call.query
    return await call.registry.list_referencing_ids(
        subject, call.path["version"], deleted=query.deleted, offset=query.offset, limit=query.limit
    )


# Schemas


async def list_schemas(call: RegistryCall) -> list[SubjectSchema]:
    query = call.query
    return await call.registry.list_schemas(
        query.subject_prefix,
        deleted=query.deleted,
        latest_only=query.latest_only,
        rule_type=query.rule_type,
        offset=query.offset,
        limit=query.limit,
        visible=call.access.build_filter(AclOperation.READ),
    )


async def list_types(call: RegistryCall) -> list[str]:
    return call.registry.list_types()


async def get_schema_by_id(call: RegistryCall) -> SchemaString:
    query = call.query
    return await call.registry.get_by_id(
        int(call.path["id"]),
        query.subject,
        format=query.format,
        reference_format=query.reference_format,
        fetch_max_id=query.fetch_max_id,
        visible=call.access.build_filter(AclOperation.READ),
        require_read=call.require_read,
    )


async def get_schema_text_by_id(call: RegistryCall) -> str:
    found = await call.registry.get_by_id(
        int(call.path["id"]),
        call.query.subject,
        format=call.query.format,
        visible=call.access.build_filter(AclOperation.READ),
        require_read=call.require_read,
    )
    return found.schema


async def list_subjects_of_id(call: RegistryCall) -> list[str]:
    query = call.query
    return await call.registry.list_subjects_of_id(
        int(call.path["id"]),
        query.subject,
        deleted=query.deleted,
        offset=query.offset,
        limit=query.limit,
        visible=call.access.build_filter(AclOperation.DESCRIBE),
    )


async def list_versions_of_id(call: RegistryCall) -> list[SubjectVersion]:
    query = call.query
    return await call.registry.list_versions_of_id(
        int(call.path["id"]),
        query.subject,
        deleted=query.deleted,
        offset=query.offset,
        limit=query.limit,
        visible=call.access.build_filter(AclOperation.DESCRIBE),
    )


async def get_schema_by_guid(call: RegistryCall) -> SchemaString:
    return await call.registry.get_by_guid(
        call.path["guid"],
        format=call.query.format,
        visible=call.access.build_filter(AclOperation.READ),
        require_read=call.require_read,
    )


async def list_ids_of_guid(call: RegistryCall) -> list[ContextId]:
    return await call.registry.list_ids_of_guid(
        call.path["guid"], visible=call.access.build_filter(AclOperation.DESCRIBE)
    )


# Compatibility


async def check_compatibility(call: RegistryCall) -> CompatibilityResult:
    return await _check_compatibility(call, None)


async def check_compatibility_with_version(call: RegistryCall) -> CompatibilityResult:
    return await _check_compatibility(call, call.path["version"])


async def _check_compatibility(call: RegistryCall, version: str | None) -> CompatibilityResult:
    subject = await call.resolve_subject()
    call.require_references(subject)
    try:
        reasons = await call.registry.check_compatibility(subject, call.body, version, normalize=call.query.normalize)
    except UnprocessableSchemaError as error:
        if not call.query.verbose:
            raise
        reasons = [error.message]
    return CompatibilityResult(not reasons, reasons if call.query.verbose else None)


# Configs and modes


async def get_config(call: RegistryCall) -> Config:
    subject = call.path.get("subject")
    call.access.require_for_config(AclOperation.DESCRIBE_CONFIGS, subject)
    return await call.registry.get_config(subject, default_to_global=call.query.default_to_global)


async def alter_config(call: RegistryCall) -> RegistryConfigChange:
    subject = call.path.get("subject")
    call.access.require_for_config(AclOperation.ALTER_CONFIGS, subject)
    await call.registry.update_config(subject, call.body)
    change: RegistryConfigChange = call.body
    return change


async def delete_config(call: RegistryCall) -> Config:
    subject = call.path.get("subject")
    call.access.require_for_config(AclOperation.ALTER_CONFIGS, subject)
    return await call.registry.delete_config(subject)


async def get_mode(call: RegistryCall) -> ModeChange:
    subject = call.path.get("subject")
    call.access.require_for_config(AclOperation.DESCRIBE_CONFIGS, subject)
    return ModeChange(await call.registry.get_mode(subject, default_to_global=call.query.default_to_global))


async def alter_mode(call: RegistryCall) -> ModeChange:
    subject = call.path.get("subject")
    call.access.require_for_config(AclOperation.ALTER_CONFIGS, subject)
    if call.body.mode is None:
        raise InvalidModeError()
    return ModeChange(await call.registry.set_mode(subject, call.body.mode, force=call.query.force))


async def delete_mode(call: RegistryCall) -> ModeChange:
    subject = call.path.get("subject")
    call.access.require_for_config(AclOperation.ALTER_CONFIGS, subject)
    return ModeChange(await call.registry.delete_mode(subject, recursive=call.query.recursive))


# Contexts and the server


async def list_contexts(call: RegistryCall) -> list[str]:
    query = call.query
    return await call.registry.list_contexts(
        query.context_prefix,
        offset=query.offset,
        limit=query.limit,
        visible=call.access.build_filter(AclOperation.DESCRIBE),
    )


async def delete_context(call: RegistryCall) -> None:
    context = call.path["context"]
    call.access.require(AclOperation.DELETE, join_subject(context, ""))
    await call.registry.delete_context(context)


async def show_cluster_id(call: RegistryCall) -> dict[str, Any]:
    clusters = {"kafka-cluster": call.cluster_id, "schema-registry-cluster": CLUSTER_NAME}
    return {"scope": {"path": [], "clusters": clusters}}


async def show_version(call: RegistryCall) -> dict[str, str]:
    return {"version": chronik.__version__, "commitId": ""}


async def show_openapi(call: RegistryCall) -> dict[str, Any]:
    from chronik.console.registry.openapi import build_document

    return build_document()
