"""How an operation of the admin API is declared: once, for those who route, who check, who document and who test."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec

from chronik.console.rest.shapes.common import NoQuestion

BASE: Final = "/api/v1"

PATH_PARAMETERS: Final[dict[str, tuple[Any, str]]] = {
    "topic": (str, "A topic's name."),
    "group": (str, "A consumer group's name."),
    "node": (Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)], "A node's id."),
    "transactional_id": (str, "A transactional id."),
    "user": (str, "A user's name, without User:."),
    "pipeline": (str, "A pipeline's name."),
}


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    """Behind BASE; {names} are those of PATH_PARAMETERS."""
    does: str
    """Where its function is, in `chronik.console.rest.doing`: "topics:create". It is loaded when first asked
    for."""
    summary: str
    """A sentence."""
    rights: str
    """What the principal must be allowed, for people: the node's own handlers ask for it."""
    query: type[msgspec.Struct] = NoQuestion
    body: type[msgspec.Struct] | None = None
    answer: Any = None
    events: dict[str, Any] | None = None
    """Of a stream of server-sent events: what comes with each."""
    reads_topic: str = ""
    """The path or query parameter that names the topic whose records it returns. The permission to read the topic is
    checked again before each part of the response."""
    status: HTTPStatus = HTTPStatus.OK
    is_open: bool = False
    """Whether it is answered without a login."""

    @property
    def id(self) -> str:
        return self.does.replace(":", "_")

    @property
    def tag(self) -> str:
        return self.does.partition(":")[0]

    @property
    def parameters(self) -> list[str]:
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    @property
    def changes(self) -> bool:
        return self.method != "GET"
