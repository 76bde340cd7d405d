"""One operation under way: who asks, what for, and by which means it is done."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from chronik.console.rest.inside import InsideCluster, Loop
from chronik.console.rest.node_side import NodeSide
from chronik.console.rest.refusals import Refusal
from chronik.exchange import account_key
from chronik.principals import Principal
from chronik.protocol.permissions import CLUSTER_NAME, Operation, ResourceType

READ_SECONDS_MAX: Final = 5.0
CHANGE_SECONDS_MAX: Final = 15.0
"""How long nodes are asked again while nobody leads; then the answer is 503."""


class Call:
    def __init__(
        self, side: NodeSide, loop: Loop, principal: Principal, host: str, path: dict[str, Any], *, changes: bool
    ) -> None:
        self.side = side
        self.loop = loop.child()
        self.principal = principal
        self.host = host
        self.path = path
        """Its parameters, by the names that the table has."""
        self.has_gone: Final = threading.Event()
        """Whether nobody listens any more, of an operation that goes on until then."""
        self._timeout_s = CHANGE_SECONDS_MAX if changes else READ_SECONDS_MAX
        self._cluster: InsideCluster | None = None

    def abandon(self) -> None:
        """Stop an operation that only reads, because its response is no longer wanted."""
        self.has_gone.set()
        self.loop.close(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the operation was abandoned"))

    @property
    def account(self) -> str:
        """The account that the operation's resources are charged to."""
        return account_key(self.principal, self.host)

    @property
    def cluster(self) -> InsideCluster:
        """The cluster as this principal sees it."""
        if self._cluster is None:
            self._cluster = InsideCluster(self.side, self.loop, self.principal, self.host, self._timeout_s)
        return self._cluster

    @property
    def node_id(self) -> int:
        return self.side.services.node_id

    def allowed(self, operation: Operation, resource: ResourceType, names: Sequence[str]) -> list[str]:
        """Returns those of the names with which the principal may do so, and tells nobody: it is for what is left out
        of an answer, and was not asked for. ACLs are looked at where they change, which is the loop."""
        authorizer = self.side.services.authorizer
        if authorizer is None:
            return list(names)

        async def judge() -> list[str]:
            asked = self.principal, self.host, operation, resource
            return [name for name in names if authorizer.allows(*asked, name)]

        return self.loop.run(judge(), self._timeout_s)

    def may_describe_cluster(self) -> bool:
        return bool(self.allowed(Operation.DESCRIBE, ResourceType.CLUSTER, [CLUSTER_NAME]))


def missing(what: str) -> Refusal:
    return Refusal(HTTPStatus.NOT_FOUND, what)


def wrong(why: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, why)
