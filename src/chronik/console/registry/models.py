"""Query parameters, request bodies and responses of the schema registry's REST API, other than registry entities.

Names are in camel case. As in Confluent's API, unknown query parameters and unknown fields of bodies are ignored.
"""

from __future__ import annotations

from msgspec import Struct, field

from chronik.registry.entities import Metadata, RuleSet, SchemaReference


class Parameters(Struct, frozen=True, rename="camel"):
    """The base class of query parameters. Fields are strings, integers, booleans, or tuples of repeated values."""


class NoParameters(Parameters, frozen=True):
    """The query of an operation without parameters."""


class ListSubjects(Parameters, frozen=True):
    """The query of a list of subjects."""

    subject_prefix: str = ":*:"
    deleted: bool = False
    deleted_only: bool = False
    offset: int = 0
    limit: int = -1


class ListVersions(Parameters, frozen=True):
    """The query of a list of versions."""

    deleted: bool = False
    deleted_only: bool = False
    offset: int = 0
    limit: int = -1


class ListSchemas(Parameters, frozen=True):
    """The query of a list of schemas."""

    subject_prefix: str = ""
    deleted: bool = False
    latest_only: bool = False
    rule_type: str = ""
    offset: int = 0
    limit: int = -1


class ListContexts(Parameters, frozen=True):
    """The query of a list of contexts."""

    context_prefix: str = ""
    offset: int = 0
    limit: int = -1


class ListReferencing(Parameters, frozen=True):
    """The query of a list of referencing schemas."""

    deleted: bool = False
    offset: int = 0
    limit: int = -1


class ListOfId(Parameters, frozen=True):
    """The query of a list of the subjects or versions that have an id."""

    subject: str | None = None
    deleted: bool = False
    offset: int = 0
    limit: int = -1


class GetVersion(Parameters, frozen=True):
    """The query of a version of a subject."""

    deleted: bool = False
    format: str = ""
    reference_format: str = ""


class GetSchemaOfVersion(Parameters, frozen=True):
    """The query of the text of a version."""

    deleted: bool = False
    format: str = ""


class GetSchemaById(Parameters, frozen=True):
    """The query of a schema by its id."""

    subject: str | None = None
    format: str = ""
    reference_format: str = ""
    fetch_max_id: bool = False


class GetSchemaTextById(Parameters, frozen=True):
    """The query of the text of a schema by its id."""

    subject: str | None = None
    format: str = ""


class GetSchemaByGuid(Parameters, frozen=True):
    """The query of a schema by its GUID."""

    format: str = ""


class GetLatestWithMetadata(Parameters, frozen=True):
    """The query of the latest version with given metadata properties."""

    key: tuple[str, ...] = ()
    value: tuple[str, ...] = ()
    deleted: bool = False
    format: str = ""


class Register(Parameters, frozen=True):
    """The query of a registration."""

    normalize: bool = False
    format: str = ""


class LookUp(Parameters, frozen=True):
    """The query of a lookup of a schema under a subject."""

    normalize: bool = False
    deleted: bool = False
    format: str = ""


class CheckCompatibility(Parameters, frozen=True):
    """The query of a compatibility check."""

    normalize: bool = False
    verbose: bool = False


class Delete(Parameters, frozen=True):
    """The query of a deletion."""

    permanent: bool = False


class GetDefault(Parameters, frozen=True):
    """The query of a config or mode."""

    default_to_global: bool = False


class SetMode(Parameters, frozen=True):
    """The query of a mode change."""

    force: bool = False


class DeleteMode(Parameters, frozen=True):
    """The query of the deletion of a mode."""

    recursive: bool = False


class ModeChange(Struct, frozen=True):
    """The body of a mode change, and the response to it."""

    mode: str | None = None


class Registration(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The response to a registration."""

    id: int
    version: int
    guid: str
    schema: str
    schema_type: str = "AVRO"
    references: list[SchemaReference] | None = None
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    ts: int | None = None


class CompatibilityResult(Struct, frozen=True, omit_defaults=True):
    """The response to a compatibility check."""

    is_compatible: bool = field(default_factory=bool)  # a factory, because false must not be omitted
    messages: list[str] | None = None
    """Why the schema is incompatible; only in verbose responses."""


class RegistryErrorBody(Struct, frozen=True):
    """The body of an error response."""

    error_code: int
    message: str
