"""Error responses for requests that failed as a whole, derived from the message declarations.

Depending on the API version, clients expect an error for the whole request or for each named element. So the error is
set everywhere, and the response repeats the parts of the request that it declares as mirrors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar, cast

from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.schema import Request, Response, Struct

R = TypeVar("R", bound=Response)

ERROR_FIELDS: Final = {"error_code": "code", "error_message": "message", "records": "b''"}
"""The names of error fields in responses, with the Python expressions of their values in generated code."""


def build_error_fields(error: KafkaError | None) -> dict[str, Any]:
    """Return the values of the fields `error_code` and `error_message` of a response element."""
    return {"error_code": error.code if error else ErrorCode.NONE, "error_message": error.message if error else None}


def build_error_response(response: type[R], request: Request, code: ErrorCode) -> R:
    """Return the response to a failed request, with the error code in each of its elements."""
    error_response: R = _compile_error_builder(response, type(request))(request, code, code.message)
    return error_response


@cache
def _compile_error_builder(
    response: type[Response], request: type[Request]
) -> Callable[[Request, ErrorCode, str], Any]:
    """Compile a function that builds the error responses of an API, because a response may have 250,000 elements."""
    known: dict[str, Any] = {}
    expression = _build_response_expression(response, request, "request", known)
    return cast(Callable[[Request, ErrorCode, str], Any], eval(f"lambda request, code, message: {expression}", known))


def _build_response_expression(
    cls: type[Struct], request_type: type[Struct] | str | None, name: str, known: dict[str, Any]
) -> str:
    """Return a Python expression that builds an error response or one of its elements.

    `name` is the part of the request that it mirrors, of the class `request_type` unless it is a primitive. Classes are
    added to `known` by name.
    """
    known[cls.__name__] = cls
    values = {field.name: ERROR_FIELDS[field.name] for field in cls.__schema__.fields if field.name in ERROR_FIELDS}
    for field in cls.__schema__.fields:
        if field.mirrors is None:
            continue
        if not isinstance(request_type, type):
            values[field.name] = name
            continue
        value = f"{name}.{field.mirrors}"
        (mirrored,) = (each for each in request_type.__schema__.fields if each.name == field.mirrors)
        if isinstance(field.element, type):
            expression = _build_response_expression(field.element, mirrored.element, f"{name}_", known)
            is_named = any(each.mirrors for each in field.element.__schema__.fields)  # if not, all elements are equal
            value = (
                f"[{expression} for {name}_ in {value} or ()]" if is_named else f"[{expression}] * len({value} or ())"
            )
        elif mirrored.nullable.first < field.nullable.first:  # in some versions the response field cannot be null
            value = f"{field.default!r} if {value} is None else {value}"
        values[field.name] = value
    return f"{cls.__name__}({', '.join(f'{key}={value}' for key, value in values.items())})"
