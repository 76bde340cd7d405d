"""Message classes by API key, imported lazily from the module that is named after the API.

A module is imported when a message of its API is first used, so that a node starts faster and a client loads only the
messages it sends. `chronik.api.routing.handlers` imports the remaining modules soon after the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final, TypeVar

from chronik.errors import check_invariant
from chronik.protocol.apis import APIS
from chronik.protocol.schema import Request, Response, Struct

M = TypeVar("M", bound=Struct)


class _LazyMessages(dict[int, type[M]]):
    """Message classes by API key, imported on first access."""

    def __init__(self, kind: type[M]) -> None:
        super().__init__()
        self._kind = kind

    def __missing__(self, key: int) -> type[M]:
        api = APIS[key]
        declared = vars(import_module(f"chronik.protocol.messages.{api.module}"))
        message: type[M] = declared[f"{api.name}{self._kind.__name__}"]
        check_invariant(issubclass(message, self._kind), f"{message.__name__} is no {self._kind.__name__}")
        self[key] = message
        return message


REQUESTS: Final[Mapping[int, type[Request]]] = _LazyMessages(Request)
RESPONSES: Final[Mapping[int, type[Response]]] = _LazyMessages(Response)
