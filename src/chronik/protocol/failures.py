"""The answer to a request that failed as a whole: it is derived from the declarations of the two messages.

Clients look for an error where their version of the API has one: for the whole request, or for each of the things that
it named. So the answer has it everywhere, and repeats those parts of the request that the response declares as mirrors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.schema import Field, Request, Response, Struct

S = TypeVar("S", bound=Struct)
R = TypeVar("R", bound=Response)


def told(error: KafkaError | None) -> dict[str, Any]:
    """Returns the error fields of a part of a response."""
    return {"error_code": error.code if error else ErrorCode.NONE, "error_message": error.message if error else None}


def failed(response: type[R], request: Request, code: ErrorCode) -> R:
    """Returns the answer to a request that failed as a whole with this error."""
    return _answer(response, request, code)


def _answer(cls: type[S], asked: Any, code: ErrorCode) -> S:
    """`asked` is the struct of the request that this one mirrors, or a name or a number."""
    values = dict(_errors(cls, code))
    for field, mirrors in _mirrored(cls):
        value = getattr(asked, mirrors) if isinstance(asked, Struct) else asked
        if isinstance(field.element, type):
            value = _answers(field.element, value or (), code)
        elif value is None and not _has_room_for_null(field, asked):
            continue
        values[field.name] = value
    return cls(**values)


def _answers(cls: type[S], asked: Sequence[Any], code: ErrorCode) -> list[S]:
    if not _mirrored(cls):
        return [_answer(cls, None, code)] * len(asked)  # one for all: a request may name a quarter of a million things
    return [_answer(cls, each, code) for each in asked]


@cache
def _errors(cls: type[Struct], code: ErrorCode) -> dict[str, object]:
    known = {"error_code": code, "error_message": code.message, "records": b""}
    return {field.name: known[field.name] for field in cls.__schema__.fields if field.name in known}


@cache
def _mirrored(cls: type[Struct]) -> list[tuple[Field, str]]:
    return [(field, field.mirrors) for field in cls.__schema__.fields if field.mirrors is not None]


def _has_room_for_null(field: Field, asked: Struct) -> bool:
    """Whether the answer may have null in every version in which the request may."""
    (mirrored,) = (each for each in asked.__schema__.fields if each.name == field.mirrors)
    return field.nullable.first <= mirrored.nullable.first
