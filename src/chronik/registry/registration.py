"""Preparation of schemas that clients send: completed from the config and the latest version, parsed and normalized."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from chronik.limits import SCHEMA_BYTES_MAX
from chronik.metadata.commands.schemas import UNASSIGNED
from chronik.metadata.schemas import (
    SchemaContent,
    SchemaTable,
    StoredSchema,
    StoredSubject,
    StoredVersion,
    split_subject,
)
from chronik.registry.comparison import ComparedVersion, check_field_names
from chronik.registry.entities import Config, Metadata, RuleSet, SchemaReference, SchemaRequest
from chronik.registry.errors import SchemaTooLargeError, UnprocessableSchemaError
from chronik.registry.parser import TYPE_NUMBERS, TYPES_BY_NUMBER, SchemaParser, UnparsedSchema
from chronik.registry.properties import (
    SchemaProperties,
    canonicalize_metadata,
    canonicalize_rule_set,
    compute_guid,
    decode_properties,
    encode_properties,
    get_version_property,
    merge_metadata,
    merge_rule_sets,
    set_version_property,
)
from chronik.registry.references import DirectReferences, SubjectCheck, resolve_direct_references, resolve_references
from chronik.registry.schema import InvalidSchemaError, ResolvedReference, Schema, SchemaType
from chronik.registry.settings import RegistryMode, get_effective_config, get_effective_mode

NEXT_VERSION = 0
"""The version number in requests that stands for the next version, as does -1, which also adds it to the metadata."""


ID_MAX = 2**31 - 1
"""The highest schema id and version: clients read them as signed 32-bit integers."""


class SchemaDraft(msgspec.Struct, frozen=True):
    """A schema as requested by a client, with canonical properties. See `SchemaRequest`."""

    text: str
    type: SchemaType
    references: tuple[SchemaReference, ...]
    metadata: Metadata | None
    rule_set: RuleSet | None
    id: int
    version: int

    @property
    def is_empty(self) -> bool:
        return not self.text.strip()


class SubjectState(NamedTuple):
    """A subject and its settings at one time, from which a request is answered."""

    name: str
    subject: StoredSubject | None
    config: Config
    mode: RegistryMode
    settings_revisions: tuple[int, ...]
    latest: StoredSchema | None
    """The schema of the latest version that is not deleted."""

    @property
    def context(self) -> str:
        return split_subject(self.name)[0]

    @property
    def revision(self) -> int:
        """Return the revision of the subject, or 0 if it does not exist."""
        return 0 if self.subject is None else self.subject.revision

    @property
    def next_version(self) -> int:
        return 1 if self.subject is None else self.subject.next_version

    @property
    def live_versions(self) -> list[StoredVersion]:
        return [] if self.subject is None else self.subject.live_versions


class PreparedSchema(NamedTuple):
    """A schema that was parsed, as it would be stored."""

    draft: SchemaDraft
    parsed: Schema
    text: str
    direct: DirectReferences
    resolved: tuple[ResolvedReference, ...]
    properties: str
    guid: bytes

    @property
    def compared(self) -> ComparedVersion:
        """Return what is compared with other versions."""
        schema = UnparsedSchema(self.draft.type, self.text, self.resolved)
        references = tuple((each.name, each.subject, each.version) for each in self.direct.versions)
        return ComparedVersion(self.draft.version, schema, references, self.draft.metadata, self.draft.rule_set)

    @property
    def content(self) -> SchemaContent:
        """Return what makes it equal to a stored schema."""
        return SchemaContent(TYPE_NUMBERS[self.draft.type], self.text, self.direct.versions, self.properties)

    def may_equal(self, schema: StoredSchema) -> bool:
        """Return whether a stored schema may be the same: a quick check before the comparison."""
        if schema.schema_type != TYPE_NUMBERS[self.draft.type]:
            return False
        if schema.text == self.text:
            return True
        is_avro = self.draft.type is SchemaType.AVRO
        may_be_resolved = bool(schema.references) and not self.direct.versions
        return is_avro and (len(schema.text) == len(self.text) or may_be_resolved)


def load_subject_state(table: SchemaTable, name: str) -> SubjectState:
    """Return the current state of a subject."""
    subject = table.subjects.get(name)
    live = [] if subject is None else subject.live_versions
    return SubjectState(
        name,
        subject,
        get_effective_config(table, name),
        get_effective_mode(table, name),
        table.settings_revisions(name),
        table.schemas[split_subject(name)[0], live[-1].schema_id] if live else None,
    )


def build_draft(request: SchemaRequest) -> SchemaDraft:
    """Return the schema in a request.

    Raises:
        UnprocessableSchemaError: The schema type is unknown.
        SchemaTooLargeError: The schema is too large.
    """
    schema_type = request.schema_type or SchemaType.AVRO
    if schema_type not in list(SchemaType):
        raise UnprocessableSchemaError(f"Invalid schema type {schema_type}")
    if (request.id or 0) > ID_MAX or (request.version or 0) > ID_MAX:
        raise UnprocessableSchemaError(f"Ids and versions may be at most {ID_MAX}")
    check_text_size(request.schema)
    return SchemaDraft(
        text=request.schema,
        type=SchemaType(schema_type),
        references=tuple(request.references or ()),
        metadata=None if request.metadata is None else canonicalize_metadata(request.metadata),
        rule_set=None if request.rule_set is None else canonicalize_rule_set(request.rule_set),
        id=UNASSIGNED if request.id is None else max(UNASSIGNED, request.id),
        version=NEXT_VERSION if request.version is None else max(UNASSIGNED, request.version),
    )


def check_text_size(text: str) -> None:
    """Check the size of a schema.

    Raises:
        SchemaTooLargeError: The schema is too large.
    """
    if len(text) > SCHEMA_BYTES_MAX or (
        not text.isascii() and len(text.encode("utf-8", "surrogatepass")) > SCHEMA_BYTES_MAX
    ):
        raise SchemaTooLargeError(
            f"Register operation failed because schema is too large: it may have at most {SCHEMA_BYTES_MAX} bytes"
        )


def complete_text(draft: SchemaDraft, state: SubjectState) -> SchemaDraft:
    """Return the draft with the text of the latest version if it has none.

    Raises:
        UnprocessableSchemaError: There is no version, either.
    """
    if not draft.is_empty:
        return draft
    if state.latest is None:
        raise UnprocessableSchemaError("Empty schema")
    latest = state.latest
    references = tuple(SchemaReference(each.name, each.subject, each.version) for each in latest.references)
    return msgspec.structs.replace(
        draft, text=latest.text, type=TYPES_BY_NUMBER[latest.schema_type], references=references
    )


def complete_properties(draft: SchemaDraft, state: SubjectState, *, new_version: int | None) -> SchemaDraft:
    """Return the draft with the properties of the latest version and those that the config adds.

    Args:
        draft: The draft.
        state: The subject.
        new_version: The number of the new version, which is added to the metadata if the draft specifies a version or
            the metadata has one already. None leaves the number in the metadata alone.
    """
    latest = SchemaProperties(None, None) if state.latest is None else decode_properties(state.latest.properties)
    config = state.config
    metadata = draft.metadata if draft.metadata is not None else latest.metadata
    metadata = merge_metadata(merge_metadata(config.default_metadata, metadata), config.override_metadata)
    rule_set = draft.rule_set if draft.rule_set is not None else latest.rule_set
    rule_set = merge_rule_sets(merge_rule_sets(config.default_rule_set, rule_set), config.override_rule_set)
    if new_version is not None and (draft.version != NEXT_VERSION or get_version_property(metadata) is not None):
        metadata = set_version_property(metadata, new_version)
    if metadata is None and rule_set is None:
        return draft
    return msgspec.structs.replace(draft, metadata=metadata, rule_set=rule_set)


class ResolvedDraft(NamedTuple):
    """A draft with the schemas to which it refers, ready to be parsed in a thread."""

    draft: SchemaDraft
    direct: DirectReferences
    resolved: tuple[ResolvedReference, ...]
    is_new: bool


def resolve_draft(table: SchemaTable, context: str, draft: SchemaDraft, *, is_new: bool) -> ResolvedDraft:
    """Find the schemas to which a draft refers.

    Raises:
        UnprocessableSchemaError: A referenced version does not exist, or the references exceed a limit.
    """
    try:
        direct = resolve_direct_references(table, context, draft.references, include_deleted=not is_new)
        resolved = resolve_references(
            table, context, direct.versions, include_deleted=not is_new, text_bytes=len(draft.text)
        )
    except InvalidSchemaError as error:
        raise describe_invalid_schema(draft.type, error) from None
    return ResolvedDraft(draft, direct, resolved, is_new)


def parse_draft(
    parser: SchemaParser, resolved: ResolvedDraft, config: Config, mode: RegistryMode, *, normalize: bool
) -> PreparedSchema:
    """Parse a draft, and compute its canonical text and GUID. Schemas that are imported are not normalized.

    Raises:
        UnprocessableSchemaError: The schema is invalid.
        SchemaTooLargeError: The canonical text or the properties are too large.
    """
    draft = resolved.draft
    unparsed = UnparsedSchema(draft.type, draft.text, resolved.resolved)
    # As in Confluent's registry, only Avro has rules that apply to new schemas but not to lookups.
    is_new = resolved.is_new or (draft.type is not SchemaType.AVRO and mode is not RegistryMode.IMPORT)
    try:
        parsed = parser.parse(unparsed, is_new=is_new)
        if mode is RegistryMode.IMPORT:
            text = parsed.canonical_text
        else:
            if config.validate_fields:
                check_field_names(parsed, unparsed)
            text = parsed.normalize() if normalize else parsed.canonical_text
    except (InvalidSchemaError, RecursionError) as error:
        raise describe_invalid_schema(draft.type, error) from None
    check_text_size(text)
    properties = SchemaProperties(draft.metadata, draft.rule_set)
    return PreparedSchema(
        draft,
        parsed,
        text,
        resolved.direct,
        resolved.resolved,
        encode_properties(properties),
        compute_guid(text, resolved.direct.versions, properties),
    )


def describe_invalid_schema(schema_type: SchemaType, error: Exception) -> UnprocessableSchemaError:
    """Return the error that clients see for an invalid schema."""
    return UnprocessableSchemaError(f"Invalid schema of type {schema_type}, details: {error}")


def load_compared_version(
    table: SchemaTable, context: str, version: StoredVersion, *, with_references: bool
) -> ComparedVersion:
    """Return a version of a subject in the form in which it is compared.

    Args:
        table: The schemas.
        context: The context of the subject.
        version: The version.
        with_references: Whether to find the schemas to which it refers, which parsing requires.

    Raises:
        UnprocessableSchemaError: A schema to which the version refers does not exist any more.
    """
    schema = table.schemas[context, version.schema_id]
    properties = decode_properties(schema.properties)
    references = tuple((each.name, each.subject, each.version) for each in schema.references)
    return ComparedVersion(version.number, load_unparsed(table, schema, with_references), references, *properties)


def load_unparsed(
    table: SchemaTable,
    schema: StoredSchema,
    with_references: bool = True,
    require_read: SubjectCheck | None = None,
) -> UnparsedSchema:
    """Return a stored schema in the form in which it is parsed.

    Raises:
        UnprocessableSchemaError: A schema to which it refers does not exist any more.
        AccessDeniedError: `require_read` rejects a subject to which it refers.
    """
    schema_type = TYPES_BY_NUMBER[schema.schema_type]
    if not with_references or not schema.references:
        return UnparsedSchema(schema_type, schema.text)
    try:
        references = resolve_references(table, schema.context, schema.references, require_read=require_read)
    except InvalidSchemaError as error:
        raise describe_invalid_schema(schema_type, error) from None
    return UnparsedSchema(schema_type, schema.text, references)
