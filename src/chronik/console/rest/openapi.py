"""The OpenAPI document of the admin API, made from the table of operations."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import msgspec

import chronik
from chronik.console.rest.operation import BASE, PATH_PARAMETERS, Operation
from chronik.console.rest.shapes.common import WORDS_CHARACTERS_MAX, Error
from chronik.console.rest.table import OPERATIONS

_REF: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"

REFUSALS: Final = {
    HTTPStatus.BAD_REQUEST: "It cannot be done as it was asked for.",
    HTTPStatus.UNAUTHORIZED: "Nobody is logged in.",
    HTTPStatus.FORBIDDEN: "The principal has no right to it.",
    HTTPStatus.NOT_FOUND: "There is no such thing.",
    HTTPStatus.CONFLICT: "It exists already, or is in use.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too long.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body is not application/json.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The query or the body has another shape.",
    HTTPStatus.TOO_MANY_REQUESTS: "Too much is under way.",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "The path, the query and the headers have more than 8 KiB.",
    HTTPStatus.NOT_IMPLEMENTED: "This cluster cannot do it.",
    HTTPStatus.SERVICE_UNAVAILABLE: "Nobody can do it at the moment; it says so where it may have been done.",
    HTTPStatus.GATEWAY_TIMEOUT: "There was no answer in time: it is not known whether it was done.",
}


def document() -> dict[str, Any]:
    shapes = _shapes()
    schemas, components = msgspec.json.schema_components(shapes, ref_template=_REF)
    by_shape = dict(zip(map(_key, shapes), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, by_shape)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Chronik", "version": chronik.__version__, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": BASE}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "session": {"type": "apiKey", "in": "cookie", "name": "chronik_session"},
                "password": {"type": "http", "scheme": "basic"},
            },
        },
    }


def _shapes() -> list[Any]:
    """Every type that is spoken of, once."""
    found: dict[str, Any] = {_key(Error): Error}
    for operation in OPERATIONS:
        for shape in (operation.body, operation.answer, *(operation.events or {}).values()):
            if shape is not None:
                found[_key(shape)] = shape
    return list(found.values())


def _key(shape: Any) -> str:
    return repr(shape)


def _described(operation: Operation, by_shape: dict[str, Any]) -> dict[str, Any]:
    error = by_shape[_key(Error)]
    described: dict[str, Any] = {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": f"Rights: {operation.rights}.",
        "parameters": [*_path_parameters(operation), *_query_parameters(operation)],
        "responses": {
            str(operation.status.value): {"description": "Done.", "content": _content(operation, by_shape)},
            **{
                str(status.value): {"description": told, "content": {_JSON: {"schema": error}}}
                for status, told in REFUSALS.items()
            },
        },
        "security": [{}] if operation.is_open else [{"session": []}, {"password": []}],
    }
    if operation.body is not None:
        content = {_JSON: {"schema": by_shape[_key(operation.body)]}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _content(operation: Operation, by_shape: dict[str, Any]) -> dict[str, Any]:
    if operation.events is None:
        return {_JSON: {"schema": by_shape[_key(operation.answer)]}}
    told = {name: by_shape[_key(shape)] for name, shape in operation.events.items()}
    return {_EVENTS: {"schema": {"type": "string"}, "x-events": told}}


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    found = []
    for name in operation.parameters:
        shape, told = PATH_PARAMETERS[name]
        schema = msgspec.json.schema(shape)
        if shape is str:
            schema |= {"minLength": 1, "maxLength": WORDS_CHARACTERS_MAX}
        found.append({"name": name, "in": "path", "required": True, "description": told, "schema": schema})
    return found


def _query_parameters(operation: Operation) -> list[dict[str, Any]]:
    schema = msgspec.json.schema(operation.query)
    properties = schema["$defs"][operation.query.__name__]["properties"]
    required = {field.encode_name for field in msgspec.structs.fields(operation.query) if field.required}
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _without_null(given)}
        for name, given in properties.items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query says nothing by leaving a name out."""
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(choices) != 1:
        return schema
    return choices[0]  # type: ignore[no-any-return]
