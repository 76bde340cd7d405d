"""Routing of admin API requests, and decoding of path parameters, queries and bodies."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import msgspec

from chronik.console.rest.errors import RestError
from chronik.console.rest.operation_table import BASE_PATH, OPERATIONS, PATH_PARAMETERS, RestOperation

_BY_LENGTH: Final[dict[int, list[tuple[list[str], RestOperation]]]] = {}
for _each in OPERATIONS:
    _parts = _each.path.split("/")
    _BY_LENGTH.setdefault(len(_parts), []).append((_parts, _each))


class MethodNotAllowed(RestError):
    """A request for an existing path with a method that it does not support."""

    def __init__(self, allowed: list[str]) -> None:
        super().__init__(HTTPStatus.METHOD_NOT_ALLOWED, f"method not allowed: expected {' or '.join(allowed)}")
        self.allowed = ", ".join(allowed)


def match_route(method: str, target: str) -> tuple[RestOperation, dict[str, Any]]:
    """Return the operation that matches an HTTP method and a percent-encoded path, and its path parameters.

    Raises:
        RestError: No operation matches.
    """
    parts = target.removeprefix(BASE_PATH).split("/")
    candidates = [
        (template, each) for template, each in _BY_LENGTH.get(len(parts), ()) if _matches_template(template, parts)
    ]
    if not candidates:
        raise RestError(HTTPStatus.NOT_FOUND, f"path not found; see {BASE_PATH}/openapi.json for the available paths")
    wanted = "GET" if method == "HEAD" else method
    for template, operation in candidates:
        if operation.method == wanted:
            return operation, _decode_path(template, parts)
    raise MethodNotAllowed(list(dict.fromkeys(each.method for _, each in candidates)))


def _matches_template(template: list[str], parts: list[str]) -> bool:
    return all(wanted == part or (wanted[:1] == "{" and part) for wanted, part in zip(template, parts, strict=True))


def _decode_path(template: list[str], parts: list[str]) -> dict[str, Any]:
    found = {}
    for wanted, part in zip(template, parts, strict=True):
        if wanted[:1] == "{":
            name = wanted[1:-1]
            try:
                text = unquote(part, errors="strict")
                found[name] = msgspec.convert(text, PATH_PARAMETERS[name][0], strict=False)
            except (UnicodeDecodeError, msgspec.ValidationError) as error:
                raise RestError(HTTPStatus.NOT_FOUND, f"{name}: {_format_error(error)}") from None
    return found


def decode_query(operation: RestOperation, query: str) -> msgspec.Struct:
    """Decode an operation's query parameters. Raise RestError if they are invalid."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict", max_num_fields=50)
    except ValueError:
        raise RestError(HTTPStatus.UNPROCESSABLE_ENTITY, "expected a query of the form name=value&name=value") from None
    given = dict(pairs)
    known = {field.encode_name for field in msgspec.structs.fields(operation.query)}
    if len(given) != len(pairs):
        raise RestError(HTTPStatus.UNPROCESSABLE_ENTITY, "the query has a duplicate parameter")
    if unknown := sorted(given.keys() - known):
        expected = f"expected {', '.join(sorted(known))}" if known else "no parameters are expected"
        raise RestError(HTTPStatus.UNPROCESSABLE_ENTITY, f"unknown query parameter {unknown[0]!r}: {expected}")
    try:
        return msgspec.convert(given, operation.query, strict=False)
    except msgspec.ValidationError as error:
        raise RestError(HTTPStatus.UNPROCESSABLE_ENTITY, f"invalid query: {_format_error(error)}") from None


def decode_body(operation: RestOperation, body: bytes) -> msgspec.Struct | None:
    """Decode a request body. Return None if the operation has no body; raise RestError if the body is invalid."""
    if operation.body is None:
        return None
    try:
        return msgspec.json.decode(body, type=operation.body)
    except msgspec.ValidationError as error:
        raise RestError(HTTPStatus.UNPROCESSABLE_ENTITY, f"invalid body: {_format_error(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RestError(HTTPStatus.BAD_REQUEST, "the body is not valid JSON") from None


def _format_error(error: Exception) -> str:
    return str(error) if isinstance(error, msgspec.ValidationError) else "not valid UTF-8"
