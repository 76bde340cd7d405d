"""All operations of the schema registry's REST API, and how an operation is declared.

Routes, the OpenAPI document, the documentation and tests are derived from this table.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from chronik.console.registry.models import (
    CheckCompatibility,
    CompatibilityResult,
    Delete,
    DeleteMode,
    GetDefault,
    GetLatestWithMetadata,
    GetSchemaByGuid,
    GetSchemaById,
    GetSchemaOfVersion,
    GetSchemaTextById,
    GetVersion,
    ListContexts,
    ListOfId,
    ListReferencing,
    ListSchemas,
    ListSubjects,
    ListVersions,
    LookUp,
    ModeChange,
    NoParameters,
    Parameters,
    Register,
    Registration,
    SetMode,
)
from chronik.registry.entities import (
    Config,
    ContextId,
    RegistryConfigChange,
    SchemaRequest,
    SchemaString,
    SubjectSchema,
    SubjectVersion,
)

BASE_PATH: Final = "/registry"
"""The path of the registry on the HTTP port. On a listener of its own, its path is empty."""

INT_PARAMETERS: Final = frozenset({"id"})
"""The path parameters that are integers."""

PATH_PARAMETERS: Final = {
    "subject": "The name of a subject, with its context if it is not in the default one: `:.CONTEXT:SUBJECT`.",
    "version": "The number of a version, or `latest`.",
    "id": "The id of a schema.",
    "guid": "The GUID of a schema.",
    "context": "The name of a context, such as `.lab`.",
}

TEXT: Final = "text"
"""The response type of operations that return the text of a schema as it is stored."""


MUTATIONS: Final = frozenset(
    {"register_schema", "delete_subject", "delete_version", "alter_config", "delete_config", "alter_mode"}
    | {"delete_mode", "delete_context"}
)
"""The functions that change the registry."""


class RegistryOperation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of the schema registry's REST API."""

    method: str
    path: str
    """The path below BASE_PATH. Names in braces are keys of PATH_PARAMETERS."""
    function: str
    """The function in `chronik.console.registry.operations` that implements the operation."""
    summary: str
    """The description of the operation, one sentence."""
    permissions: str
    """The required permissions, for documentation only. The functions enforce them."""
    query: type[Parameters] = NoParameters
    body: type[msgspec.Struct] | None = None
    response: Any = None
    """The type of the response, TEXT, or None if the response has no body."""

    @property
    def parameters(self) -> list[str]:
        """The names of the path parameters."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    @property
    def is_mutation(self) -> bool:
        """Whether the operation changes the registry."""
        return self.function in MUTATIONS

    @property
    def api(self) -> str:
        """The name of the operation in the audit log and in metrics, such as `RegisterSchema`."""
        return "".join(map(str.capitalize, self.function.split("_")))


def _create_operation(
    method: str, path: str, function: str, summary: str, permissions: str, **fields: Any
) -> RegistryOperation:
    return RegistryOperation(
        method=method, path=path, function=function, summary=summary, permissions=permissions, **fields
    )


_o: Final = _create_operation
_VERSIONS: Final = "/subjects/{subject}/versions"
_CHECK: Final = f"/compatibility{_VERSIONS}"

OPERATIONS: Final = (
    _o("GET", "/", "show_root", "Return an empty object, for tests of the connection.", "none",
       response=dict[str, Any]),
    _o("POST", "/", "show_root", "Return an empty object, for tests of the connection.", "none",
       response=dict[str, Any]),
    # Subjects
    _o("GET", "/subjects", "list_subjects", "List subjects.", "Describe Subject; other subjects are omitted",
       query=ListSubjects, response=list[str]),
    _o("POST", "/subjects/{subject}", "look_up_schema", "Return the version of a subject that has a schema.",
       "Read Subject, and of referenced subjects", query=LookUp, body=SchemaRequest, response=SubjectSchema),
    _o("DELETE", "/subjects/{subject}", "delete_subject", "Delete a subject, and return its versions.",
       "Delete Subject", query=Delete, response=list[int]),
    _o("GET", "/subjects/{subject}/metadata", "get_latest_with_metadata",
       "Return the latest version of a subject with given metadata properties.", "Read Subject",
       query=GetLatestWithMetadata, response=SubjectSchema),
    _o("GET", _VERSIONS, "list_versions", "List the versions of a subject.", "Describe Subject", query=ListVersions,
       response=list[int]),
    _o("POST", _VERSIONS, "register_schema", "Register a schema under a subject.",
       "Write Subject; Read of referenced subjects", query=Register, body=SchemaRequest, response=Registration),
    _o("GET", f"{_VERSIONS}/{{version}}", "get_version", "Return a version of a subject.", "Read Subject",
       query=GetVersion, response=SubjectSchema),
    _o("DELETE", f"{_VERSIONS}/{{version}}", "delete_version", "Delete a version of a subject.", "Delete Subject",
       query=Delete, response=int),
    _o("GET", f"{_VERSIONS}/{{version}}/schema", "get_schema_of_version", "Return the text of a version.",
       "Read Subject", query=GetSchemaOfVersion, response=TEXT),
    _o("GET", f"{_VERSIONS}/{{version}}/referencedby", "list_referencing_ids",
       "List the ids of the schemas that refer to a version.", "Describe Subject", query=ListReferencing,
       response=list[int]),
    # Schemas
    _o("GET", "/schemas", "list_schemas", "List versions of all subjects.", "Read Subject; other subjects are omitted",
       query=ListSchemas, response=list[SubjectSchema]),
    _o("GET", "/schemas/types", "list_types", "List the supported schema types.", "none", response=list[str]),
    _o("GET", "/schemas/ids/{id}", "get_schema_by_id", "Return a schema by its id.",
       "Read on one Subject that has the id", query=GetSchemaById, response=SchemaString),
    _o("GET", "/schemas/ids/{id}/schema", "get_schema_text_by_id", "Return the text of a schema by its id.",
       "Read on one Subject that has the id", query=GetSchemaTextById, response=TEXT),
    _o("GET", "/schemas/ids/{id}/subjects", "list_subjects_of_id", "List the subjects that have an id.",
       "Describe Subject; other subjects are omitted", query=ListOfId, response=list[str]),
    _o("GET", "/schemas/ids/{id}/versions", "list_versions_of_id", "List the versions that have an id.",
       "Describe Subject; other subjects are omitted", query=ListOfId, response=list[SubjectVersion]),
    _o("GET", "/schemas/guids/{guid}", "get_schema_by_guid", "Return a schema by its GUID.",
       "Read on one Subject that has the schema", query=GetSchemaByGuid, response=SchemaString),
    _o("GET", "/schemas/guids/{guid}/ids", "list_ids_of_guid", "List the contexts and ids of a schema.",
       "Describe Subject; ids without such a subject are omitted", response=list[ContextId]),
    # Compatibility
    _o("POST", _CHECK, "check_compatibility",
       "Check whether a schema may be registered under a subject.", "Read Subject, and of referenced subjects",
       query=CheckCompatibility, body=SchemaRequest, response=CompatibilityResult),
    _o("POST", f"{_CHECK}/{{version}}", "check_compatibility_with_version",
       "Check whether a schema is compatible with a version.", "Read Subject, and of referenced subjects",
       query=CheckCompatibility, body=SchemaRequest, response=CompatibilityResult),
    # Configs and modes
    _o("GET", "/config", "get_config", "Return the global config.", "DescribeConfigs Cluster", query=GetDefault,
       response=Config),
    _o("PUT", "/config", "alter_config", "Change the global config.", "AlterConfigs Cluster", body=RegistryConfigChange,
       response=RegistryConfigChange),
    _o("DELETE", "/config", "delete_config", "Delete the global config.", "AlterConfigs Cluster", response=Config),
    _o("GET", "/config/{subject}", "get_config", "Return the config of a subject or context.",
       "DescribeConfigs Subject", query=GetDefault, response=Config),
    _o("PUT", "/config/{subject}", "alter_config", "Change the config of a subject or context.",
       "AlterConfigs Subject", body=RegistryConfigChange, response=RegistryConfigChange),
    _o("DELETE", "/config/{subject}", "delete_config", "Delete the config of a subject or context.",
       "AlterConfigs Subject", response=Config),
    _o("GET", "/mode", "get_mode", "Return the global mode.", "DescribeConfigs Cluster", query=GetDefault,
       response=ModeChange),
    _o("PUT", "/mode", "alter_mode", "Set the global mode.", "AlterConfigs Cluster", query=SetMode, body=ModeChange,
       response=ModeChange),
    _o("DELETE", "/mode", "delete_mode", "Delete the global mode.", "AlterConfigs Cluster", query=DeleteMode,
       response=ModeChange),
    _o("GET", "/mode/{subject}", "get_mode", "Return the mode of a subject or context.", "DescribeConfigs Subject",
       query=GetDefault, response=ModeChange),
    _o("PUT", "/mode/{subject}", "alter_mode", "Set the mode of a subject or context.", "AlterConfigs Subject",
       query=SetMode, body=ModeChange, response=ModeChange),
    _o("DELETE", "/mode/{subject}", "delete_mode", "Delete the mode of a subject or context.", "AlterConfigs Subject",
       query=DeleteMode, response=ModeChange),
    # Contexts and the server
    _o("GET", "/contexts", "list_contexts", "List contexts.", "Describe on one Subject of the context",
       query=ListContexts, response=list[str]),
    _o("DELETE", "/contexts/{context}", "delete_context", "Delete a context without subjects.",
       "Delete Subject, named as the context", response=None),
    _o("GET", "/v1/metadata/id", "show_cluster_id", "Return the id of the cluster.", "none",
       response=dict[str, Any]),
    _o("GET", "/v1/metadata/version", "show_version", "Return the version of Chronik.", "none",
       response=dict[str, str]),
    _o("GET", "/openapi.json", "show_openapi", "Return the OpenAPI document of this API.", "none",
       response=dict[str, Any]),
)  # fmt: skip
