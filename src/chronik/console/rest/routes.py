"""From a method and a path to an operation and what the path names."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import msgspec

from chronik.console.rest.operation import BASE, PATH_PARAMETERS, Operation
from chronik.console.rest.refusals import Refusal
from chronik.console.rest.table import OPERATIONS

_BY_LENGTH: Final[dict[int, list[tuple[list[str], Operation]]]] = {}
for _each in OPERATIONS:
    _parts = _each.path.split("/")
    _BY_LENGTH.setdefault(len(_parts), []).append((_parts, _each))


class WrongMethod(Refusal):
    def __init__(self, allowed: list[str]) -> None:
        super().__init__(HTTPStatus.METHOD_NOT_ALLOWED, f"expected {' or '.join(allowed)}")
        self.allowed = ", ".join(allowed)


def find(method: str, target: str) -> tuple[Operation, dict[str, Any]]:
    """Takes the path as it was sent. Raises Refusal."""
    parts = target.removeprefix(BASE).split("/")
    fitting = [(template, each) for template, each in _BY_LENGTH.get(len(parts), ()) if _fits(template, parts)]
    if not fitting:
        raise Refusal(HTTPStatus.NOT_FOUND, f"there is no such path; {BASE}/openapi.json names those that are")
    wanted = "GET" if method == "HEAD" else method
    for template, operation in fitting:
        if operation.method == wanted:
            return operation, _named(template, parts)
    raise WrongMethod(list(dict.fromkeys(each.method for _, each in fitting)))


def _fits(template: list[str], parts: list[str]) -> bool:
    return all(wanted == part or (wanted[:1] == "{" and part) for wanted, part in zip(template, parts, strict=True))


def _named(template: list[str], parts: list[str]) -> dict[str, Any]:
    found = {}
    for wanted, part in zip(template, parts, strict=True):
        if wanted[:1] == "{":
            name = wanted[1:-1]
            try:
                text = unquote(part, errors="strict")
                found[name] = msgspec.convert(text, PATH_PARAMETERS[name][0], strict=False)
            except (UnicodeDecodeError, msgspec.ValidationError) as error:
                raise Refusal(HTTPStatus.NOT_FOUND, f"{name}: {_shown(error)}") from None
    return found


def read_query(operation: Operation, query: str) -> msgspec.Struct:
    """Raises Refusal."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict", max_num_fields=50)
    except ValueError:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "the query is not name=value&name=value") from None
    given = dict(pairs)
    known = {field.encode_name for field in msgspec.structs.fields(operation.query)}
    if len(given) != len(pairs):
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "the query has a name twice")
    if unknown := sorted(given.keys() - known):
        expected = f"expected {', '.join(sorted(known))}" if known else "nothing is expected there"
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"the query has {unknown[0]!r}: {expected}")
    try:
        return msgspec.convert(given, operation.query, strict=False)
    except msgspec.ValidationError as error:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"the query: {_shown(error)}") from None


def read_body(operation: Operation, body: bytes) -> msgspec.Struct | None:
    """Raises Refusal."""
    if operation.body is None:
        return None
    try:
        return msgspec.json.decode(body, type=operation.body)
    except msgspec.ValidationError as error:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"the body: {_shown(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refusal(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None


def _shown(error: Exception) -> str:
    return str(error) if isinstance(error, msgspec.ValidationError) else "it is not UTF-8"
