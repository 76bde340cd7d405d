"""The context of one operation: the client's principal, the path parameters, and access to the cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar, cast

from chronik.console.rest.errors import RestError
from chronik.console.rest.internal_client import InternalCluster, LoopBridge
from chronik.console.rest.models.security import OperationName
from chronik.console.rest.node_interface import NodeInterface
from chronik.principals import Principal
from chronik.protocol.permissions import CLUSTER_NAME, OPERATIONS_BY_RESOURCE_TYPE, AclOperation, AclResourceType
from chronik.request_reply import build_account_key

T = TypeVar("T")

READ_SECONDS_MAX: Final = 5.0
CHANGE_SECONDS_MAX: Final = 15.0
"""Maximum seconds for which an admin API operation retries a change while the cluster has no controller."""
NAMES_PER_SLICE: Final = 50
"""Number of resources whose operations are checked in one event-loop iteration, at most about 1 ms."""


class OperationContext:
    """The context of one admin API operation in progress: its principal, path parameters and cluster client."""

    def __init__(
        self,
        side: NodeInterface,
        loop: LoopBridge,
        principal: Principal,
        host: str,
        path: dict[str, Any],
        *,
        is_mutation: bool,
    ) -> None:
        self.node = side
        self.loop_bridge = loop.create_child()
        self.principal = principal
        self.host = host
        self.path_parameters = path
        """The path parameters by name."""
        self.abandoned: Final = threading.Event()
        """An event that tells a long operation to stop, because the client no longer needs its response."""
        self._timeout_s = CHANGE_SECONDS_MAX if is_mutation else READ_SECONDS_MAX
        self._cluster: InternalCluster | None = None

    def abandon(self) -> None:
        """Stop a read-only operation, because the client no longer needs its response."""
        self.abandoned.set()
        self.loop_bridge.close(RestError(HTTPStatus.SERVICE_UNAVAILABLE, "the operation was cancelled"))

    @property
    def account(self) -> str:
        """The account that is charged for the operation: the user or, if anonymous, the client's network."""
        return build_account_key(self.principal, self.host)

    @property
    def cluster(self) -> InternalCluster:
        """A cluster client that sends Kafka requests with the principal's permissions."""
        if self._cluster is None:
            self._cluster = InternalCluster(self.node, self.loop_bridge, self.principal, self.host, self._timeout_s)
        return self._cluster

    @property
    def node_id(self) -> int:
        """The id of this node."""
        return self.node.services.node_id

    def filter_authorized(self, operation: AclOperation, resource: AclResourceType, names: Sequence[str]) -> list[str]:
        """Return the names of the resources on which the principal may perform the operation.

        Denials are not audited: the caller only omits these resources from a response. The check runs on the event
        loop, where ACLs change.
        """
        authorizer = self.node.services.authorizer
        if authorizer is None:
            return list(names)

        async def check() -> list[str]:
            request = self.principal, self.host, operation, resource
            return [name for name in names if authorizer.is_authorized(*request, name)]

        return self.loop_bridge.run(check(), self._timeout_s)

    def find_authorized_operations(
        self, resource: AclResourceType, names: Sequence[str]
    ) -> dict[str, list[OperationName]]:
        """Return the operations that the principal may perform on each of the resources. Denials are not audited."""
        authorizer = self.node.services.authorizer
        operations = OPERATIONS_BY_RESOURCE_TYPE[resource]
        if authorizer is None:
            return {name: [format_operation(each) for each in operations] for name in names}

        async def check() -> dict[str, list[OperationName]]:
            found = {}
            for index, name in enumerate(names):
                if index % NAMES_PER_SLICE == NAMES_PER_SLICE - 1:
                    await asyncio.sleep(0)
                found[name] = [
                    format_operation(each)
                    for each in operations
                    if authorizer.is_authorized(self.principal, self.host, each, resource, name)
                ]
            return found

        return self.loop_bridge.run(check(), self._timeout_s)

    def find_operations_by_type(
        self, kinds: Sequence[AclResourceType]
    ) -> dict[AclResourceType, tuple[list[OperationName], list[OperationName]]]:
        """Return the operations that the principal may perform on any and on all resources of each type."""
        authorizer = self.node.services.authorizer

        async def check() -> dict[AclResourceType, tuple[list[OperationName], list[OperationName]]]:
            found: dict[AclResourceType, tuple[list[OperationName], list[OperationName]]] = {}
            for kind in kinds:
                found[kind] = [], []
                for operation in OPERATIONS_BY_RESOURCE_TYPE[kind]:
                    request = self.principal, self.host, operation, kind
                    if authorizer is None or authorizer.is_authorized_for_any(*request):
                        found[kind][0].append(format_operation(operation))
                    if authorizer is None or authorizer.is_authorized_for_all(*request):
                        found[kind][1].append(format_operation(operation))
                    await asyncio.sleep(0)
            return found

        return self.loop_bridge.run(check(), self._timeout_s)

    def call_on_loop(self, function: Callable[[], T]) -> T:
        """Call a short function on the node's event loop, where the metadata image changes, and return its result."""

        async def call() -> T:
            return function()

        return self.loop_bridge.run(call(), self._timeout_s)

    def can_describe_cluster(self) -> bool:
        """Return whether the principal has the Describe permission on the cluster."""
        return bool(self.filter_authorized(AclOperation.DESCRIBE, AclResourceType.CLUSTER, [CLUSTER_NAME]))


def format_operation(operation: AclOperation) -> OperationName:
    """Return the name of an ACL operation in the API, such as alter-configs."""
    return cast("OperationName", operation.name.lower().replace("_", "-"))


def build_not_found_error(what: str) -> RestError:
    """Return a 404 error."""
    return RestError(HTTPStatus.NOT_FOUND, what)


def build_bad_request_error(message: str) -> RestError:
    """Return a 400 error."""
    return RestError(HTTPStatus.BAD_REQUEST, message)
