"""The answer to a request that failed as a whole: it is derived from the declarations of the two messages.

Clients look for an error where their version of the API has one: for the whole request, or for each of the things that
it named. So the answer has it everywhere, and repeats those parts of the request that the response declares as mirrors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar, cast

from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.schema import Request, Response, Struct

R = TypeVar("R", bound=Response)

ERRORS: Final = {"error_code": "code", "error_message": "message", "records": "b''"}
"""Where an answer tells an error, and what it says there."""


def told(error: KafkaError | None) -> dict[str, Any]:
    """Returns the error fields of a part of a response."""
    return {"error_code": error.code if error else ErrorCode.NONE, "error_message": error.message if error else None}


def failed(response: type[R], request: Request, code: ErrorCode) -> R:
    """Returns the answer to a request that failed as a whole with this error."""
    answer: R = _compiled(response, type(request))(request, code, code.message)
    return answer


@cache
def _compiled(response: type[Response], request: type[Request]) -> Callable[[Request, ErrorCode, str], Any]:
    """A request may name a quarter of a million things: for each, no more is done than if it were written by hand."""
    known: dict[str, Any] = {}
    made = _made(response, request, "asked", known)
    return cast(Callable[[Request, ErrorCode, str], Any], eval(f"lambda asked, code, message: {made}", known))


def _made(cls: type[Struct], asked: type[Struct] | str | None, name: str, known: dict[str, Any]) -> str:
    """Returns an expression for a part of the response: `name` is the part of the request that it mirrors, of the class
    `asked`, unless that is a name or a number. Classes are known by names, which are added."""
    known[cls.__name__] = cls
    values = {field.name: ERRORS[field.name] for field in cls.__schema__.fields if field.name in ERRORS}
    for field in cls.__schema__.fields:
        if field.mirrors is None:
            continue
        if not isinstance(asked, type):
            values[field.name] = name
            continue
        value = f"{name}.{field.mirrors}"
        (mirrored,) = (each for each in asked.__schema__.fields if each.name == field.mirrors)
        if isinstance(field.element, type):
            made = _made(field.element, mirrored.element, f"{name}_", known)
            is_named = any(each.mirrors for each in field.element.__schema__.fields)  # if not, one will do for all
            value = f"[{made} for {name}_ in {value} or ()]" if is_named else f"[{made}] * len({value} or ())"
        elif mirrored.nullable.first < field.nullable.first:  # in some version the answer has no room for null
            value = f"{field.default!r} if {value} is None else {value}"
        values[field.name] = value
    return f"{cls.__name__}({', '.join(f'{key}={value}' for key, value in values.items())})"
