"""A client of the node's own cluster that runs inside the node.

Its requests go to the local router, or over the peer connections to other nodes, on behalf of the logged-in principal.
Permissions, quotas and the audit log therefore apply as they do for Kafka clients.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, TypeVar
from weakref import WeakSet

from chronik.client.cluster import ClusterClient
from chronik.client.connection import BrokerConnection
from chronik.client.errors import BrokerUnreachable, ClientError, ConnectionLost, RequestTimedOut
from chronik.config import Address
from chronik.console.rest.node_interface import NodeInterface
from chronik.peers.calls import CallRejected, CallTimedOut, PeerUnavailable
from chronik.principals import Principal
from chronik.protocol.apis import APIS
from chronik.protocol.codec import RequestHeader, UnencodableMessage, encode_request
from chronik.protocol.messages.metadata import MetadataResponse
from chronik.protocol.schema import Request
from chronik.request_reply import ConnectedClient, Disconnect, dispatch_without_connection

T = TypeVar("T")

NODE_STOPPING: Final = "the node is shutting down"
CLIENT_ID: Final = "chronik-console"
NODE_HOST: Final = "node"
"""Placeholder host in the addresses of nodes. The node id is used as the port."""
THROTTLED_SECONDS_MAX: Final = 10.0
_SIZE_BYTES: Final = struct.calcsize(">i")


class LoopBridge:
    """A bridge through which the worker threads of the admin API run coroutines on the node's event loop.

    Closing the API or an operation cancels its pending calls.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pending: set[Future[Any]] = set()
        self._children: WeakSet[LoopBridge] = WeakSet()
        self._closed_with: Exception | None = None

    def create_child(self) -> LoopBridge:
        """Return a bridge for a single operation, which can be closed without closing this one."""
        child = LoopBridge(self._loop)
        child._closed_with = self._closed_with
        self._children.add(child)
        return child

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run a coroutine on the event loop and return its result.

        Raises:
            TimeoutError: The coroutine did not finish in time.
            Exception: The bridge was closed, by default with ConnectionLost because the node is shutting down.
        """
        if self._closed_with is not None:
            work.close()
            raise self._closed_with
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._pending.add(future)
        if self._closed_with is not None:  # closed concurrently
            future.cancel()
        try:
            return future.result(timeout_s)
        except CancelledError:
            raise (self._closed_with or ConnectionLost(NODE_STOPPING)) from None
        except FutureTimeoutError:
            future.cancel()
            raise TimeoutError from None
        finally:
            self._pending.discard(future)

    def close(self, error: Exception | None = None) -> None:
        """Cancel all coroutines in progress. Their callers get the given error, by default ConnectionLost."""
        self._closed_with = error or ConnectionLost(NODE_STOPPING)
        for future in list(self._pending):
            future.cancel()
        for child in list(self._children):
            child.close(self._closed_with)


class InternalCluster(ClusterClient):
    """A cluster client that runs inside a node and addresses brokers by node id."""

    def __init__(
        self, side: NodeInterface, loop: LoopBridge, principal: Principal, host: str, timeout_s: float
    ) -> None:
        self._side = side
        self.loop = loop
        listener = side.services.config.listeners[0].name
        self.peer = ConnectedClient(host, 0, 0, listener, principal)
        super().__init__(f"{NODE_HOST}:{side.services.node_id}", client_id=CLIENT_ID, timeout_s=timeout_s)

    def metadata(self, topics: list[str] | None, *, create: bool = False) -> MetadataResponse:
        response = super().metadata(topics, create=create)
        self._brokers = {node_id: Address(NODE_HOST, node_id) for node_id in self._brokers}
        return response

    def _find_coordinator(self, key: str, key_type: int) -> tuple[int, Address]:
        node_id, _ = super()._find_coordinator(key, key_type)
        return node_id, Address(NODE_HOST, node_id)

    def node(self, node_id: int) -> BrokerConnection:
        """Return a connection to a node, even if it leads no partitions or is missing from the metadata.

        Raises:
            BrokerUnreachable: The node cannot be reached.
        """
        return self._get_connection(Address(NODE_HOST, node_id))

    def any_broker(self) -> BrokerConnection:
        return self._get_connection(Address(NODE_HOST, self._side.services.node_id))

    def _get_connection(self, address: Address) -> BrokerConnection:
        known = self._connections.get(address)
        if known is None or known.is_closed:
            known = InternalConnection(self._side, self.loop, self.peer, address.port, self.timeout_s)
            self._connections[address] = known
            self._reached = True
        return known


class InternalConnection(BrokerConnection):
    """A connection to the request router of this node or, over a peer connection, of another node."""

    def __init__(
        self, side: NodeInterface, loop: LoopBridge, peer: ConnectedClient, node_id: int, timeout_s: float
    ) -> None:
        """Create a connection to a node. A remote node negotiates API versions, because it may run an older release.

        Raises:
            BrokerUnreachable: The node cannot be reached.
        """
        self.address = Address(NODE_HOST, node_id)
        self._side = side
        self._node_loop = loop
        self._peer = peer
        self._node_id = node_id
        self._timeout_s = timeout_s
        self._client_id = CLIENT_ID
        self._correlation_id = 0
        self._reauthenticate_at = float("inf")
        self._is_closed = False
        self._broker_versions = {api.key: api.versions for api in APIS.values()}
        if node_id != side.services.node_id:
            try:
                self._negotiate_versions()
            except ConnectionLost as error:
                raise BrokerUnreachable(str(error)) from error

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True

    def _exchange(self, request: Request, version: int, timeout_s: float) -> memoryview:
        self._correlation_id += 1
        header = RequestHeader(request.__schema__.api_key, version, self._correlation_id, self._client_id)
        try:
            frame = bytearray(encode_request(header, request))[_SIZE_BYTES:]
        except UnencodableMessage as error:  # a string exceeds the limits of the Kafka protocol
            raise ClientError(str(error)) from error
        pending = (
            self._dispatch_locally(frame)
            if self._node_id == self._side.services.node_id
            else self._forward(frame, timeout_s)
        )
        try:
            response_frame = self._node_loop.run(pending, timeout_s)
        except (TimeoutError, CallTimedOut):
            self.close()
            raise RequestTimedOut(f"node {self._node_id}: no response within {timeout_s:g} s") from None
        except PeerUnavailable as error:
            self.close()
            if not error.may_have_arrived:
                raise BrokerUnreachable(f"node {self._node_id}: cannot be reached: {error}") from error
            raise ConnectionLost(f"node {self._node_id}: {error}") from error
        except (CallRejected, LookupError) as error:
            self.close()
            raise BrokerUnreachable(f"node {self._node_id}: call rejected: {error}") from error
        except Disconnect as error:
            self.close()
            raise ConnectionLost(f"node {self._node_id}: no response: {error}") from error
        self._wait_for_quota()
        return memoryview(response_frame)[_SIZE_BYTES:]

    async def _dispatch_locally(self, frame: bytearray) -> bytes:
        return await dispatch_frame(self._side, frame, self._peer)

    async def _forward(self, frame: bytearray, timeout_s: float) -> bytes:
        peer = self._peer
        response_frame, peer.throttle_seconds = await self._side.other_nodes.forward_request(
            self._node_id, peer.principal, peer.host, peer.listener, bytes(frame), timeout_s
        )
        return response_frame

    def _wait_for_quota(self) -> None:
        """Wait for the throttle time that the last response imposed, as a Kafka client does before its next request."""
        delay_s, self._peer.throttle_seconds = self._peer.throttle_seconds, 0.0
        if delay_s > 0:
            time.sleep(min(delay_s, THROTTLED_SECONDS_MAX))


async def dispatch_frame(side: NodeInterface, frame: bytearray, peer: ConnectedClient) -> bytes:
    """Dispatch a Kafka request frame to this node's request router, and return the response frame.

    Raises:
        Disconnect: The request has no response.
    """
    response = await dispatch_without_connection(side.dispatch, side.services.scheduler, frame, peer)
    if response is None:
        raise Disconnect("the request has no response")
    return b"".join(response)
