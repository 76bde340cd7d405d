"""The declaration of an operation of the admin API, from which routes, checks, documents and tests are derived."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec

from chronik.console.rest.models.common import NoQuestion

BASE_PATH: Final = "/api/v1"

PATH_PARAMETERS: Final[dict[str, tuple[Any, str]]] = {
    "topic": (str, "The name of a topic."),
    "group": (str, "The id of a consumer group."),
    "node": (Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)], "The id of a node."),
    "transactional_id": (str, "A transactional id."),
    "user": (str, "The name of a user, without the prefix User:."),
    "pipeline": (str, "The name of a pipeline."),
}


class RestOperation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of the admin API."""

    method: str
    path: str
    """The path below BASE. Names in braces are keys of PATH_PARAMETERS."""
    handler: str
    """The module and function in `chronik.console.rest.operations` that implement it, such as "topics:create". The
    module is imported on first use."""
    summary: str
    """The description of the operation, one sentence."""
    permissions: str
    """The required permissions, for the documentation. The node's request handlers enforce them."""
    query: type[msgspec.Struct] = NoQuestion
    body: type[msgspec.Struct] | None = None
    response: Any = None
    events: dict[str, Any] | None = None
    """The payload type of each server-sent event, if the response is a stream."""
    reads_topic: str = ""
    """The path or query parameter that names the topic whose records it returns. The Read permission on the topic is
    checked again before each part of the response."""
    status: HTTPStatus = HTTPStatus.OK
    is_public: bool = False
    """Whether the operation is available without authentication."""

    @property
    def id(self) -> str:
        """The OpenAPI operation id."""
        return self.handler.replace(":", "_")

    @property
    def tag(self) -> str:
        """The OpenAPI tag: the module that implements the operation."""
        return self.handler.partition(":")[0]

    @property
    def parameters(self) -> list[str]:
        """The names of the path parameters."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    @property
    def is_mutation(self) -> bool:
        """Whether the operation changes anything."""
        return self.method != "GET"
