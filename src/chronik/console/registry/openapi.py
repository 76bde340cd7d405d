"""The OpenAPI document of the schema registry's REST API, generated from the table of operations."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import msgspec

import chronik
from chronik.console.registry.content_types import PRODUCED
from chronik.console.registry.models import RegistryErrorBody
from chronik.console.registry.operation_table import (
    BASE_PATH,
    INT_PARAMETERS,
    OPERATIONS,
    PATH_PARAMETERS,
    TEXT,
    RegistryOperation,
)
from chronik.limits import SUBJECT_NAME_CHARACTERS_MAX

_REF: Final = "#/components/schemas/{name}"

ERROR_DESCRIPTIONS: Final = {
    HTTPStatus.BAD_REQUEST: "The request is malformed.",
    HTTPStatus.UNAUTHORIZED: "Authentication is required.",
    HTTPStatus.FORBIDDEN: "The principal is not authorized.",
    HTTPStatus.NOT_FOUND: "The subject, version, schema, config or mode does not exist.",
    HTTPStatus.NOT_ACCEPTABLE: "The client accepts no JSON.",
    HTTPStatus.CONFLICT: "The schema is incompatible with earlier versions.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The content type of the body is not supported.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The schema or another value is invalid, or a limit is reached.",
    HTTPStatus.TOO_MANY_REQUESTS: "The quota of changes is exceeded.",
    HTTPStatus.INTERNAL_SERVER_ERROR: "The change was not confirmed in time, or the node failed.",
    HTTPStatus.NOT_IMPLEMENTED: "The feature level of the cluster is too low, or the change is not supported.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The node cannot serve the request at the moment.",
}


def build_document() -> dict[str, Any]:
    """Return the OpenAPI document as a JSON object."""
    models = _collect_models()
    schemas, components = msgspec.json.schema_components(list(models.values()), ref_template=_REF)
    by_key = dict(zip(models, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe_operation(operation, by_key)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Chronik schema registry", "version": chronik.__version__, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": BASE_PATH}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "chronik_session",
                    "description": "Over HTTPS, the cookie is named __Host-chronik_session.",
                },
                "password": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _collect_models() -> dict[str, Any]:
    """Return the types of all bodies and responses by key, without duplicates."""
    found: dict[str, Any] = {repr(RegistryErrorBody): RegistryErrorBody}
    for operation in OPERATIONS:
        for model in (operation.body, operation.response):
            if model is not None and model is not TEXT:
                found[repr(model)] = model
    return found


def _describe_operation(operation: RegistryOperation, by_key: dict[str, Any]) -> dict[str, Any]:
    error = by_key[repr(RegistryErrorBody)]
    status = HTTPStatus.NO_CONTENT if operation.response is None else HTTPStatus.OK
    described: dict[str, Any] = {
        "operationId": _get_operation_id(operation),
        "summary": operation.summary,
        "description": f"Permissions: {operation.permissions}.",
        "parameters": [*_describe_path_parameters(operation), *_describe_query_parameters(operation)],
        "responses": {
            str(status.value): _describe_success(operation, by_key),
            **{
                str(each.value): {"description": description, "content": _describe_content(error)}
                for each, description in ERROR_DESCRIPTIONS.items()
            },
        },
        "security": [{"session": []}, {"password": []}, {"token": []}],
    }
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _describe_content(by_key[repr(operation.body)])}
    return described


def _get_operation_id(operation: RegistryOperation) -> str:
    """Return a unique id: a function may implement several paths and methods."""
    if operation.function == "show_root":
        return f"{operation.method.lower()}_root"
    is_global = operation.path in ("/config", "/mode")
    return operation.function + ("_global" if is_global else "")


def _describe_success(operation: RegistryOperation, by_key: dict[str, Any]) -> dict[str, Any]:
    if operation.response is None:
        return {"description": "Success, without a body."}
    if operation.response is TEXT:
        return {"description": "The text of the schema.", "content": _describe_content({})}
    return {"description": "Success.", "content": _describe_content(by_key[repr(operation.response)])}


def _describe_content(schema: dict[str, Any]) -> dict[str, Any]:
    return {content_type: {"schema": schema} for content_type in PRODUCED}


def _describe_path_parameters(operation: RegistryOperation) -> list[dict[str, Any]]:
    found = []
    for name in operation.parameters:
        if name in INT_PARAMETERS:
            schema: dict[str, Any] = {"type": "integer"}
        else:
            schema = {"type": "string", "minLength": 1, "maxLength": SUBJECT_NAME_CHARACTERS_MAX}
        description = PATH_PARAMETERS[name]
        found.append({"name": name, "in": "path", "required": True, "description": description, "schema": schema})
    return found


def _describe_query_parameters(operation: RegistryOperation) -> list[dict[str, Any]]:
    schema = msgspec.json.schema(operation.query)
    properties = schema["$defs"][operation.query.__name__]["properties"]
    return [
        {"name": name, "in": "query", "required": False, "schema": _without_null(given)}
        for name, given in properties.items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without its null variant, because optional query parameters are omitted instead."""
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return choices[0] if len(choices) == 1 else schema
