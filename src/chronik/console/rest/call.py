"""One operation under way: who asks, what for, and by which means it is done."""

from __future__ import annotations

import threading
from http import HTTPStatus
from typing import Any, Final

from chronik.console.rest.inside import InsideCluster, Loop
from chronik.console.rest.node_side import NodeSide
from chronik.console.rest.refusals import Refusal
from chronik.principals import Principal

READ_SECONDS_MAX: Final = 5.0
CHANGE_SECONDS_MAX: Final = 15.0
"""How long nodes are asked again while nobody leads; then the answer is 503."""


class Call:
    def __init__(
        self, side: NodeSide, loop: Loop, principal: Principal, host: str, path: dict[str, Any], *, changes: bool
    ) -> None:
        self.side = side
        self.loop = loop
        self.principal = principal
        self.host = host
        self.path = path
        """Its parameters, by the names that the table has."""
        self.has_gone: Final = threading.Event()
        """Whether nobody listens any more, of an operation that goes on until then."""
        self._timeout_s = CHANGE_SECONDS_MAX if changes else READ_SECONDS_MAX
        self._cluster: InsideCluster | None = None

    @property
    def cluster(self) -> InsideCluster:
        """The cluster as this principal sees it."""
        if self._cluster is None:
            self._cluster = InsideCluster(self.side, self.loop, self.principal, self.host, self._timeout_s)
        return self._cluster

    @property
    def node_id(self) -> int:
        return self.side.services.node_id


def missing(what: str) -> Refusal:
    return Refusal(HTTPStatus.NOT_FOUND, what)


def wrong(why: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, why)
