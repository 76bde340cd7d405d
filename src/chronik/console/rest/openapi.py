"""The OpenAPI document of the admin API, generated from the table of operations."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import msgspec

import chronik
from chronik.console.rest.models.common import WORDS_CHARACTERS_MAX, Error
from chronik.console.rest.operation_table import BASE_PATH, OPERATIONS, PATH_PARAMETERS, RestOperation

_REF: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"

ERROR_DESCRIPTIONS: Final = {
    HTTPStatus.BAD_REQUEST: "The request is invalid.",
    HTTPStatus.UNAUTHORIZED: "Authentication is required.",
    HTTPStatus.FORBIDDEN: "The principal is not authorized.",
    HTTPStatus.NOT_FOUND: "The resource does not exist.",
    HTTPStatus.CONFLICT: "The resource already exists or is in use.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body is not application/json.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The query or the body does not match the schema.",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many operations are in progress.",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "The path, the query and the headers exceed 8 KiB.",
    HTTPStatus.NOT_IMPLEMENTED: "The cluster does not support the operation.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The operation failed temporarily; the error says if it may have been executed.",
    HTTPStatus.GATEWAY_TIMEOUT: "The operation timed out; it may have been executed.",
}


def build_document() -> dict[str, Any]:
    """Return the OpenAPI document as a JSON object."""
    models = _collect_models()
    schemas, components = msgspec.json.schema_components(models, ref_template=_REF)
    schemas_by_key = dict(zip(map(_key, models), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe_operation(operation, schemas_by_key)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Chronik", "version": chronik.__version__, "license": {"name": "Apache-2.0"}},
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
            },
        },
    }


def _collect_models() -> list[Any]:
    """Return every request, response and event type, without duplicates."""
    found: dict[str, Any] = {_key(Error): Error}
    for operation in OPERATIONS:
        for model in (operation.body, operation.response, *(operation.events or {}).values()):
            if model is not None and not operation.media_types:
                found[_key(model)] = model
    return list(found.values())


def _key(model: Any) -> str:
    return repr(model)


def _describe_operation(operation: RestOperation, schemas_by_key: dict[str, Any]) -> dict[str, Any]:
    error = schemas_by_key[_key(Error)]
    described: dict[str, Any] = {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": f"Permissions: {operation.permissions}.",
        "parameters": [*_describe_path_parameters(operation), *_describe_query_parameters(operation)],
        "responses": {
            str(operation.status.value): {
                "description": "Success.",
                "content": _build_response_content(operation, schemas_by_key),
            },
            **{
                str(status.value): {"description": description, "content": {_JSON: {"schema": error}}}
                for status, description in ERROR_DESCRIPTIONS.items()
            },
        },
        "security": [{}] if operation.is_public else [{"session": []}, {"password": []}],
    }
    if operation.body is not None:
        content = {_JSON: {"schema": schemas_by_key[_key(operation.body)]}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _build_response_content(operation: RestOperation, schemas_by_key: dict[str, Any]) -> dict[str, Any]:
    if operation.media_types:
        return {each: {"schema": {"type": "string", "format": "binary"}} for each in operation.media_types}
    if operation.events is None:
        return {_JSON: {"schema": schemas_by_key[_key(operation.response)]}}
    description = {name: schemas_by_key[_key(model)] for name, model in operation.events.items()}
    return {_EVENTS: {"schema": {"type": "string"}, "x-events": description}}


def _describe_path_parameters(operation: RestOperation) -> list[dict[str, Any]]:
    found = []
    for name in operation.parameters:
        model, description = PATH_PARAMETERS[name]
        schema = msgspec.json.schema(model)
        if model is str:
            schema |= {"minLength": 1, "maxLength": WORDS_CHARACTERS_MAX}
        found.append({"name": name, "in": "path", "required": True, "description": description, "schema": schema})
    return found


def _describe_query_parameters(operation: RestOperation) -> list[dict[str, Any]]:
    schema = msgspec.json.schema(operation.query)
    properties = schema["$defs"][operation.query.__name__]["properties"]
    required = {field.encode_name for field in msgspec.structs.fields(operation.query) if field.required}
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _without_null(given)}
        for name, given in properties.items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without its null variant, because optional query parameters are omitted instead."""
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(choices) != 1:
        return schema
    return choices[0]  # type: ignore[no-any-return]
