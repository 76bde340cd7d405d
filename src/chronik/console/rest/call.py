"""The context of one operation: the client's principal, the path parameters, and access to the cluster."""

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
"""Time for which an operation is retried while no controller is available. Then the response is 503."""


class Call:
    """The context of one operation in progress."""

    def __init__(
        self, side: NodeSide, loop: Loop, principal: Principal, host: str, path: dict[str, Any], *, is_mutation: bool
    ) -> None:
        self.side = side
        self.loop = loop.child()
        self.principal = principal
        self.host = host
        self.path = path
        """The path parameters by name."""
        self.has_gone: Final = threading.Event()
        """Set when the response is no longer wanted. Open-ended operations stop then."""
        self._timeout_s = CHANGE_SECONDS_MAX if is_mutation else READ_SECONDS_MAX
        self._cluster: InsideCluster | None = None

    def abandon(self) -> None:
        """Stop a read-only operation, because its response is no longer wanted."""
        self.has_gone.set()
        self.loop.close(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the operation was cancelled"))

    @property
    def account(self) -> str:
        """The account that the operation's resources are charged to."""
        return account_key(self.principal, self.host)

    @property
    def cluster(self) -> InsideCluster:
        """A client of the cluster that acts as the principal."""
        if self._cluster is None:
            self._cluster = InsideCluster(self.side, self.loop, self.principal, self.host, self._timeout_s)
        return self._cluster

    @property
    def node_id(self) -> int:
        """The id of this node."""
        return self.side.services.node_id

    def allowed(self, operation: Operation, resource: ResourceType, names: Sequence[str]) -> list[str]:
        """Return the names of the resources on which the principal is authorized for the operation.

        Denials are not audited: the caller only omits these resources from a response. The check runs on the event
        loop, where ACLs change.
        """
        authorizer = self.side.services.authorizer
        if authorizer is None:
            return list(names)

        async def check() -> list[str]:
            request = self.principal, self.host, operation, resource
            return [name for name in names if authorizer.allows(*request, name)]

        return self.loop.run(check(), self._timeout_s)

    def may_describe_cluster(self) -> bool:
        """Return whether the principal has the Describe permission on the cluster."""
        return bool(self.allowed(Operation.DESCRIBE, ResourceType.CLUSTER, [CLUSTER_NAME]))


def missing(what: str) -> Refusal:
    """Return a 404 error."""
    return Refusal(HTTPStatus.NOT_FOUND, what)


def wrong(message: str) -> Refusal:
    """Return a 400 error."""
    return Refusal(HTTPStatus.BAD_REQUEST, message)
