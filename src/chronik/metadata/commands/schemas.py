"""Commands that change the schema registry: schemas, versions of subjects, configs, modes and contexts.

The proposer parses schemas and checks their compatibility against its image. A command therefore carries the revisions
of the subject and of the settings that the proposer has seen, and is rejected if they have changed since: the proposer
checks again and retries. A revision is the log index of the last change, or 0 if there is no record.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from chronik.limits import (
    SCHEMA_BYTES_MAX,
    SCHEMA_PROPERTIES_BYTES_MAX,
    SCHEMA_REFERENCE_NAME_CHARACTERS_MAX,
    SCHEMA_REFERENCES_MAX,
    SUBJECT_NAME_CHARACTERS_MAX,
    SUBJECT_VERSIONS_MAX,
)
from chronik.metadata.commands.base import CommandBase, CommandPart, TimeMs, UuidBytes
from chronik.metadata.levels import SCHEMAS_LEVEL, since_level

ANY_REVISION: Final = -1
"""The revision in a command that is applied whatever the current revision is, as in restores from a backup."""

UNASSIGNED: Final = -1
"""The schema id or version number of a registration to which applying the command assigns the next one.

A restore from a backup keeps the ids and numbers instead.
"""

MODES_PER_COMMAND_MAX: Final = 1000
"""The maximum number of subjects in a SetSchemaMode command. Applying one takes about 5 µs."""

SubjectName = Annotated[str, Meta(min_length=1, max_length=SUBJECT_NAME_CHARACTERS_MAX)]
"""The type of names of subjects, with their context unless it is the default context."""

SettingsName = Annotated[str, Meta(max_length=SUBJECT_NAME_CHARACTERS_MAX)]
"""The type of names of subjects and contexts that have settings. The default context has the empty name."""

ContextName = Annotated[str, Meta(min_length=1, max_length=SUBJECT_NAME_CHARACTERS_MAX)]
SchemaTypeNumber = Annotated[int, Meta(ge=1, le=3)]
"""The type of schema type numbers: 1 is AVRO, 2 is JSON, 3 is PROTOBUF."""
SchemaId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
NextSchemaId = Annotated[int, Meta(ge=0, le=2**31)]
SchemaIdOrUnassigned = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
VersionNumber = Annotated[int, Meta(ge=1, le=2**31 - 1)]
VersionOrUnassigned = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
NextVersionNumber = Annotated[int, Meta(ge=0, le=2**31)]
Revision = Annotated[int, Meta(ge=-1, le=2**63 - 1)]
SchemaJson = Annotated[str, Meta(max_length=SCHEMA_PROPERTIES_BYTES_MAX)]
"""The type of JSON objects that the registry stores and returns, but does not interpret when it applies commands."""


class ReferencedVersion(CommandPart, frozen=True):
    """A reference from a schema to a version of a subject, as the client specified it.

    A subject without a context is in the context of the schema.
    """

    name: Annotated[str, Meta(max_length=SCHEMA_REFERENCE_NAME_CHARACTERS_MAX)]
    subject: SubjectName
    version: VersionNumber


@since_level(SCHEMAS_LEVEL)
class RegisterSchema(CommandBase, frozen=True, tag=90):
    """A command that registers a schema as a version of a subject.

    The result's `value` combines the schema id and the version (see `chronik.metadata.schemas.split_registration`).
    """

    subject: SubjectName
    schema_type: SchemaTypeNumber
    text: Annotated[str, Meta(max_length=SCHEMA_BYTES_MAX)]
    references: Annotated[tuple[ReferencedVersion, ...], Meta(max_length=SCHEMA_REFERENCES_MAX)]
    properties: SchemaJson
    """The metadata and the rule set as a JSON object, or an empty string without either."""
    guid: UuidBytes
    """The hash of type, text, references and properties as Confluent computes it."""
    referenced_ids: Annotated[tuple[SchemaId, ...], Meta(max_length=SCHEMA_REFERENCES_MAX)]
    """The ids of the referenced schemas with which the proposer parsed the schema."""
    subject_revision: Revision
    settings_revisions: Annotated[tuple[Revision, ...], Meta(max_length=4)]
    """The revisions of the effective settings, or an empty tuple to apply the command with any settings."""
    time_ms: TimeMs
    schema_id: SchemaIdOrUnassigned = UNASSIGNED
    version: VersionOrUnassigned = UNASSIGNED
    next_version: NextVersionNumber = 0
    """The minimum of the subject's next version number, which restores set: higher versions were deleted."""
    is_deleted: bool = False
    """Whether a restore registers a version that is soft-deleted."""


@since_level(SCHEMAS_LEVEL)
class DeleteSchemaVersions(CommandBase, frozen=True, tag=91):
    """A command that deletes versions of a subject. The result's `value` is the number of versions deleted.

    A soft-deleted version keeps its number and its schema. A permanent deletion requires that the versions are
    soft-deleted; it also deletes schemas that no version has any more, and the settings of a subject without versions.
    """

    subject: SubjectName
    versions: Annotated[tuple[VersionNumber, ...], Meta(min_length=1, max_length=SUBJECT_VERSIONS_MAX)]
    permanent: bool
    subject_revision: Revision


@since_level(SCHEMAS_LEVEL)
class SetSchemaConfig(CommandBase, frozen=True, tag=92):
    """A command that replaces the config of a subject or context. An empty config removes it."""

    name: SettingsName
    config: SchemaJson
    revision: Revision
    """The revision of the settings on which the new config is based."""


@since_level(SCHEMAS_LEVEL)
class SetSchemaMode(CommandBase, frozen=True, tag=93):
    """A command that sets the mode of subjects or contexts. An empty mode removes it."""

    names: Annotated[tuple[SettingsName, ...], Meta(min_length=1, max_length=MODES_PER_COMMAND_MAX)]
    mode: Annotated[str, Meta(max_length=32)]
    requires_empty: bool = False
    """Whether to reject the command if a subject or context has versions, including soft-deleted ones."""


@since_level(SCHEMAS_LEVEL)
class SetSchemaContext(CommandBase, frozen=True, tag=94):
    """A command that creates a context, or deletes one that has no subjects.

    The context keeps its next schema id when it is deleted, so that ids are never reused. `next_id` can only raise it.
    """

    name: ContextName
    next_id: NextSchemaId = 0
    is_deleted: bool = False


ImportableCommand = RegisterSchema | SetSchemaConfig | SetSchemaMode | SetSchemaContext
"""A command by which an import or a restore transfers the schema registry of another cluster."""

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[ImportableCommand] = msgspec.msgpack.Decoder(ImportableCommand)


def encode_importable_command(command: ImportableCommand) -> bytes:
    """Return the bytes of a command in an ImportSchemas request."""
    return _encode(command)


def decode_importable_command(data: bytes) -> ImportableCommand:
    """Return the command of an ImportSchemas request.

    Raises:
        msgspec.MsgspecError: The data is not such a command, or a field exceeds its limit.
    """
    return _decoder.decode(data)
