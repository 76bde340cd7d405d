"""Routing of requests to the schema registry, and decoding of paths, queries and bodies.

As in Confluent's API, a path may start with a context: `/contexts/.lab/subjects/orders` stands for
`/subjects/:.lab:orders`.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

import msgspec

from chronik.console.registry.errors import MethodNotAllowedError, RequestError
from chronik.console.registry.operation_table import INT_PARAMETERS, OPERATIONS, RegistryOperation
from chronik.console.registry.unsupported import UnsupportedApiError, check_tag_changes, find_unsupported_api
from chronik.limits import SCHEMA_PROPERTIES_BYTES_MAX, SCHEMA_REFERENCES_MAX
from chronik.metadata.schemas import DEFAULT_CONTEXT, join_subject
from chronik.registry.entities import Metadata, RuleSet, SchemaReference, SchemaRequest
from chronik.registry.errors import SchemaTooLargeError, UnprocessableSchemaError

INT_MAX: Final = 2**31 - 1
FIELDS_MAX: Final = 100
"""Maximum number of query parameters."""

REFERENCES_BYTES_MAX: Final = SCHEMA_REFERENCES_MAX * 1024
"""Maximum size of the references in a request as JSON."""

CONFIG_BODY_BYTES_MAX: Final = 2 * SCHEMA_PROPERTIES_BYTES_MAX
"""Maximum size of the body of a config or mode change. Decoding takes 0.1 ms per KiB in the worst case."""

Candidate = tuple[list[str], RegistryOperation]
"""An operation, and the parts of its path."""

_BY_LENGTH: Final[dict[int, list[Candidate]]] = {}
for _each in OPERATIONS:
    _parts = _each.path.split("/")[1:]
    _BY_LENGTH.setdefault(len(_parts), []).append((_parts, _each))

Pairs = list[tuple[str, str]]
"""The query parameters of a request, in order."""


class Route(NamedTuple):
    """The operation that a request is for, and its parameters."""

    operation: RegistryOperation
    path: Mapping[str, str]
    """The path parameters by name."""
    query: Any
    """An instance of the operation's query type."""


def match_route(method: str, target: str, query: str) -> Route:
    """Return the operation that matches a method, a percent-encoded path below the base path, and a query.

    Raises:
        RequestError: No operation matches.
    """
    parts, pairs = _decode_target(target, query)
    candidates = _find_candidates(parts)
    wanted = "GET" if method == "HEAD" else method
    for template, operation in candidates:
        if operation.method == wanted:
            return Route(operation, _decode_path(template, parts), decode_parameters(operation.query, pairs))
    raise MethodNotAllowedError(_list_methods(candidates))


def list_methods(target: str) -> list[str]:
    """Return the HTTP methods that a percent-encoded path below the base path supports.

    Raises:
        RequestError: The path does not exist.
    """
    parts, _ = _decode_target(target, "")
    return _list_methods(_find_candidates(parts))


def _decode_target(target: str, query: str) -> tuple[list[str], Pairs]:
    try:
        parts = [unquote(part, errors="strict") for part in target.removesuffix("/").split("/")[1:]] or [""]
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError:
        raise RequestError(HTTPStatus.BAD_REQUEST, "the path or the query is not valid UTF-8") from None
    return apply_context(parts, pairs)


def _find_candidates(parts: list[str]) -> list[Candidate]:
    """Return the operations with a path, for any method.

    Raises:
        RequestError: There are none.
    """
    candidates = [
        (template, each) for template, each in _BY_LENGTH.get(len(parts), ()) if _matches_template(template, parts)
    ]
    if not candidates:
        unsupported = find_unsupported_api(parts)
        if unsupported is not None:
            raise UnsupportedApiError(unsupported.feature, unsupported.status)
        raise RequestError(HTTPStatus.NOT_FOUND)
    return candidates


def _list_methods(candidates: list[Candidate]) -> list[str]:
    methods = list(dict.fromkeys(each.method for _, each in candidates))
    return [*methods, *(["HEAD"] if "GET" in methods else []), "OPTIONS"]


def apply_context(parts: list[str], pairs: Pairs) -> tuple[list[str], Pairs]:
    """Resolve a path that starts with a context: qualify the subjects in the path and in the query with the context.

    Raises:
        RequestError: The name of the context contains a colon.
    """
    if parts[0] != "contexts" or len(parts) < 2:
        return parts, pairs
    context, rest = _normalize_context(parts[1]), parts[2:]
    prefix = join_subject(context, "")
    if not rest:
        return ["contexts", context], pairs
    if rest[0] in ("config", "mode"):
        name = rest[1] if len(rest) > 1 else ""
        qualified = _qualify(prefix, name)
        return [rest[0], qualified, *rest[2:]] if qualified else rest[:1], pairs
    if "subjects" in rest[:-1]:
        position = rest.index("subjects") + 1
        return [*rest[:position], _qualify(prefix, rest[position]), *rest[position + 1 :]], pairs
    if rest[:2] == ["schemas", "ids"]:
        return rest, _qualify_parameter(pairs, "subject", prefix)
    if rest in (["schemas"], ["subjects"]):
        return rest, _qualify_parameter(pairs, "subjectPrefix", prefix)
    return rest, pairs


def _normalize_context(name: str) -> str:
    """Return the name of a context that is given with or without colons and the leading dot."""
    name = name.removeprefix(":").removesuffix(":")
    if ":" in name:
        raise RequestError(HTTPStatus.BAD_REQUEST, f"Context name '{name}' cannot contain a colon")
    return name if name.startswith(DEFAULT_CONTEXT) else f"{DEFAULT_CONTEXT}{name}"


def _qualify(prefix: str, name: str) -> str:
    return name if name.startswith((":.", ":*:")) else f"{prefix}{name}"


def _qualify_parameter(pairs: Pairs, key: str, prefix: str) -> Pairs:
    given = next((value for name, value in pairs if name == key), "")
    return [*(pair for pair in pairs if pair[0] != key), (key, _qualify(prefix, given))]


def _matches_template(template: list[str], parts: list[str]) -> bool:
    return all(wanted == part or (wanted[:1] == "{" and part) for wanted, part in zip(template, parts, strict=True))


def _decode_path(template: list[str], parts: list[str]) -> dict[str, str]:
    found = {wanted[1:-1]: part for wanted, part in zip(template, parts, strict=True) if wanted[:1] == "{"}
    for name in INT_PARAMETERS & found.keys():
        _parse_int(found[name])
    return found


def _parse_int(text: str) -> int:
    """Parse a decimal number of 32 bits. As in Confluent's API, anything else makes the path or query unknown."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10) or int(digits) > INT_MAX:
        raise RequestError(HTTPStatus.NOT_FOUND)
    return int(text)


def decode_parameters(model: type[msgspec.Struct], pairs: Pairs) -> Any:
    """Decode query parameters. Ignore unknown ones, and all but the first value of a parameter that is not repeated.

    Raises:
        RequestError: A parameter is not an integer.
    """
    values: dict[str, Any] = {}
    for parameter in msgspec.structs.fields(model):
        given = [value for name, value in pairs if name == parameter.encode_name]
        if not given:
            continue
        if parameter.type is bool:
            values[parameter.name] = given[0].lower() == "true"
        elif parameter.type is int:
            values[parameter.name] = _parse_int(given[0])
        else:
            values[parameter.name] = tuple(given) if parameter.type == tuple[str, ...] else given[0]
    return model(**values)


# Bodies


class _SchemaRequestParts(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a SchemaRequest, of which those of unlimited size are not decoded yet."""

    schema: str | None = None
    schema_type: str | None = None
    references: msgspec.Raw = msgspec.Raw(b"null")
    metadata: msgspec.Raw = msgspec.Raw(b"null")
    rule_set: msgspec.Raw = msgspec.Raw(b"null")
    id: int | None = None
    version: int | None = None
    schema_tags_to_add: msgspec.Raw = msgspec.Raw(b"null")
    schema_tags_to_remove: msgspec.Raw = msgspec.Raw(b"null")


def decode_body(operation: RegistryOperation, body: bytes) -> Any:
    """Decode the body of a request. Return None if the operation has none.

    Raises:
        RegistryError: The body is invalid, or too large.
    """
    if operation.body is None:
        return None
    if not body:
        raise RequestError(HTTPStatus.UNPROCESSABLE_ENTITY, "the request must have a body")
    try:
        if operation.body is SchemaRequest:
            return _decode_schema_request(body)
        if len(body) > CONFIG_BODY_BYTES_MAX:
            raise SchemaTooLargeError(f"The body has more than {CONFIG_BODY_BYTES_MAX} bytes")
        return msgspec.json.decode(body, type=operation.body, strict=False)
    except msgspec.ValidationError as error:
        raise RequestError(HTTPStatus.BAD_REQUEST, f"invalid body: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RequestError(HTTPStatus.BAD_REQUEST, "the body is not valid JSON") from None


def _decode_schema_request(body: bytes) -> SchemaRequest:
    """Decode a SchemaRequest in bounded time: decoding 3 MiB of rules would block the event loop for 0.2 s."""
    parts = msgspec.json.decode(body, type=_SchemaRequestParts, strict=False)
    check_tag_changes(parts.schema_tags_to_add, parts.schema_tags_to_remove)
    if len(parts.references) > REFERENCES_BYTES_MAX:
        raise UnprocessableSchemaError(f"A schema has at most {SCHEMA_REFERENCES_MAX} references")
    if len(parts.metadata) + len(parts.rule_set) > SCHEMA_PROPERTIES_BYTES_MAX:
        raise SchemaTooLargeError(
            f"The metadata and the rule set of a schema have at most {SCHEMA_PROPERTIES_BYTES_MAX} bytes"
        )
    references = msgspec.json.decode(parts.references, type=list[SchemaReference] | None, strict=False)
    if len(references or ()) > SCHEMA_REFERENCES_MAX:  # Each is authorized before the registry sees them.
        raise UnprocessableSchemaError(f"A schema has at most {SCHEMA_REFERENCES_MAX} references")
    return SchemaRequest(
        schema=parts.schema or "",
        schema_type=parts.schema_type,
        references=references,
        metadata=msgspec.json.decode(parts.metadata, type=Metadata | None, strict=False),
        rule_set=msgspec.json.decode(parts.rule_set, type=RuleSet | None, strict=False),
        id=parts.id,
        version=parts.version,
    )
