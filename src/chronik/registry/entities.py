"""The objects that the registry receives and returns, in the JSON form of Confluent's REST API.

`msgspec.json` encodes and decodes them directly: names are in camel case, and fields with default values are omitted.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType, field


class Entity(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The base class of the objects in requests and responses."""


class SchemaReference(Entity, frozen=True):
    """A reference from a schema to a version of a subject."""

    name: str
    """The name by which the schema refers to it: an Avro full name, a JSON Schema URI or a Protobuf import path."""
    subject: str
    version: int


class Metadata(Entity, frozen=True):
    """User-defined properties and tags of a schema."""

    tags: dict[str, list[str]] | None = None
    properties: dict[str, str] | None = None
    sensitive: list[str] | None = None
    """The names of properties that clients should encrypt."""


class Rule(Entity, frozen=True):
    """A rule that clients apply when they serialize or deserialize. The registry stores rules without running them."""

    name: str | None = None
    doc: str | None = None
    kind: str | None = None
    mode: str | None = None
    type: str | None = None
    tags: list[str] | None = None
    params: dict[str, str] | None = None
    expr: str | None = None
    on_success: str | None = None
    on_failure: str | None = None
    disabled: bool = field(default_factory=bool)  # A factory, because Confluent includes false in responses.


class RuleSet(Entity, frozen=True):
    """The rules of a schema."""

    migration_rules: list[Rule] | None = None
    domain_rules: list[Rule] | None = None
    encoding_rules: list[Rule] | None = None
    enable_at: str | None = None


class SchemaRequest(Entity, frozen=True):
    """A schema to register, to look up or to check."""

    schema: str = ""
    schema_type: str | None = None
    """The format; None stands for AVRO."""
    references: list[SchemaReference] | None = None
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    id: int | None = None
    """The id to register the schema with, in mode IMPORT; None or -1 to assign one."""
    version: int | None = None
    """The version to register the schema as; None, 0 or -1 for the next one."""


class SubjectSchema(Entity, frozen=True):
    """A version of a subject and its schema."""

    subject: str
    version: int
    id: int
    guid: str
    schema: str
    schema_type: str = "AVRO"
    references: list[SchemaReference] | None = None
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    ts: int | None = None
    """The time of the registration in milliseconds since the epoch."""
    deleted: bool = False


class SchemaString(Entity, frozen=True):
    """A schema that was found by its id or GUID, with one of the versions that have it."""

    schema: str
    subject: str | None = None
    version: int | None = None
    guid: str | None = None
    schema_type: str = "AVRO"
    references: list[SchemaReference] | None = None
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    max_id: int | None = None
    """The highest id assigned in the context, if the request asks for it."""
    ts: int | None = None
    deleted: bool = False


class SubjectVersion(Entity, frozen=True):
    """The name of a subject and the number of one of its versions."""

    subject: str
    version: int


class ContextId(Entity, frozen=True):
    """A context, and the id of a schema in it."""

    context: str
    id: int


class Config(Entity, frozen=True):
    """The config of a subject, a context or the whole registry. None means that a field is not set."""

    alias: str | None = None
    normalize: bool | None = None
    validate_fields: bool | None = None
    validate_rules: bool | None = None
    compatibility_level: str | None = None
    compatibility_policy: str | None = None
    compatibility_group: str | None = None
    default_metadata: Metadata | None = None
    override_metadata: Metadata | None = None
    default_rule_set: RuleSet | None = None
    override_rule_set: RuleSet | None = None


class RegistryConfigChange(Entity, frozen=True):
    """A change of a config: absent fields keep their values, null removes them.

    The level is called `compatibility` here, and `compatibilityLevel` in `Config`, as in Confluent's API.
    """

    alias: str | UnsetType | None = UNSET
    normalize: bool | UnsetType | None = UNSET
    validate_fields: bool | UnsetType | None = UNSET
    validate_rules: bool | UnsetType | None = UNSET
    compatibility_level: str | UnsetType | None = field(default=UNSET, name="compatibility")
    compatibility_policy: str | UnsetType | None = UNSET
    compatibility_group: str | UnsetType | None = UNSET
    default_metadata: Metadata | UnsetType | None = UNSET
    override_metadata: Metadata | UnsetType | None = UNSET
    default_rule_set: RuleSet | UnsetType | None = UNSET
    override_rule_set: RuleSet | UnsetType | None = UNSET
