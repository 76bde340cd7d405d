"""The classes of the messages by API key: a message is declared in the module that has the name of its API.

A module is imported when a message of its API is first wanted, so that a node starts sooner and a client loads what it
sends. `chronik.api.routing.handlers` sees to it that a node has all of them soon after.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final, TypeVar

from chronik.errors import invariant
from chronik.protocol.apis import APIS
from chronik.protocol.schema import Request, Response, Struct

M = TypeVar("M", bound=Struct)


class _Imported(dict[int, type[M]]):
    def __init__(self, kind: type[M]) -> None:
        super().__init__()
        self._kind = kind

    def __missing__(self, key: int) -> type[M]:
        api = APIS[key]
        declared = vars(import_module(f"chronik.protocol.messages.{api.module}"))
        message: type[M] = declared[f"{api.name}{self._kind.__name__}"]
        invariant(issubclass(message, self._kind), f"{message.__name__} is no {self._kind.__name__}")
        self[key] = message
        return message


REQUESTS: Final[Mapping[int, type[Request]]] = _Imported(Request)
RESPONSES: Final[Mapping[int, type[Response]]] = _Imported(Response)
