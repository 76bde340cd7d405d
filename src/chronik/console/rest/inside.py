"""A client of the node's own cluster, inside of the node: its requests go to the node's own router, or by the nodes'
own connections to those of other nodes, as requests of whoever is logged in. So rights, quotas and the audit log are
those of Kafka's clients."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as WaitedTooLong
from typing import Any, Final, TypeVar
from weakref import WeakSet

from chronik.client.cluster import Cluster
from chronik.client.connection import Connection
from chronik.client.errors import BrokerUnreachable, ClientError, ConnectionLost, RequestTimedOut
from chronik.config import Address
from chronik.console.rest.node_side import NodeSide
from chronik.exchange import Disconnect, Peer, dispatch_without_connection
from chronik.peers.calls import CallRefused, CallTimedOut, PeerUnavailable
from chronik.principals import Principal
from chronik.protocol.apis import APIS
from chronik.protocol.codec import RequestHeader, UnencodableMessage, encode_request
from chronik.protocol.messages.metadata import MetadataResponse
from chronik.protocol.schema import Request

T = TypeVar("T")

STOPS: Final = "this node stops"
CLIENT_ID: Final = "chronik-console"
NODE: Final = "node"
"""Stands in place of a host: where a node is reached is known to the nodes, and its id is enough."""
THROTTLED_SECONDS_MAX: Final = 10.0
_SIZE_BYTES: Final = struct.calcsize(">i")


class Loop:
    """The node's loop, for threads: what they wait for ends when the API does, or the operation that they work for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._under_way: set[Future[Any]] = set()
        self._children: WeakSet[Loop] = WeakSet()
        self._closed_with: Exception | None = None

    def child(self) -> Loop:
        """Return the loop for one operation, which can be closed on its own."""
        child = Loop(self._loop)
        child._closed_with = self._closed_with
        self._children.add(child)
        return child

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Return the result of a coroutine that runs on the loop. Raises TimeoutError, or what the loop was closed
        with: ConnectionLost when the node stops."""
        if self._closed_with is not None:
            work.close()
            raise self._closed_with
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._under_way.add(future)
        if self._closed_with is not None:  # since it was looked at
            future.cancel()
        try:
            return future.result(timeout_s)
        except CancelledError:
            raise (self._closed_with or ConnectionLost(STOPS)) from None
        except WaitedTooLong:
            future.cancel()
            raise TimeoutError from None
        finally:
            self._under_way.discard(future)

    def close(self, error: Exception | None = None) -> None:
        """Cancel what threads wait for. They get this error, or by default that the node stops."""
        self._closed_with = error or ConnectionLost(STOPS)
        for future in list(self._under_way):
            future.cancel()
        for child in list(self._children):
            child.close(self._closed_with)


class InsideCluster(Cluster):
    """Knows brokers by their ids."""

    def __init__(self, side: NodeSide, loop: Loop, principal: Principal, host: str, timeout_s: float) -> None:
        self._side = side
        self.loop = loop
        listener = side.services.config.listeners[0].name
        self.peer = Peer(host, 0, 0, listener, principal)
        super().__init__(f"{NODE}:{side.services.node_id}", client_id=CLIENT_ID, timeout_s=timeout_s)

    def metadata(self, topics: list[str] | None, *, create: bool = False) -> MetadataResponse:
        response = super().metadata(topics, create=create)
        self._brokers = {node_id: Address(NODE, node_id) for node_id in self._brokers}
        return response

    def _coordinator(self, key: str, key_type: int) -> tuple[int, Address]:
        node_id, _ = super()._coordinator(key, key_type)
        return node_id, Address(NODE, node_id)

    def node(self, node_id: int) -> Connection:
        """Returns one that may lead nothing, and need not be listed. Raises BrokerUnreachable."""
        return self._connection(Address(NODE, node_id))

    def any_broker(self) -> Connection:
        return self._connection(Address(NODE, self._side.services.node_id))

    def _connection(self, address: Address) -> Connection:
        known = self._connections.get(address)
        if known is None or known.closed:
            known = InsideConnection(self._side, self.loop, self.peer, address.port, self.timeout_s)
            self._connections[address] = known
            self._reached = True
        return known


class InsideConnection(Connection):
    def __init__(self, side: NodeSide, loop: Loop, peer: Peer, node_id: int, timeout_s: float) -> None:
        """Asks another node which versions it speaks: it may be older. Raises BrokerUnreachable."""
        self.address = Address(NODE, node_id)
        self._side = side
        self._node_loop = loop
        self._peer = peer
        self._node_id = node_id
        self._timeout_s = timeout_s
        self._client_id = CLIENT_ID
        self._correlation_id = 0
        self._login_ends = float("inf")
        self._is_closed = False
        self._spoken = {api.key: api.versions for api in APIS.values()}
        if node_id != side.services.node_id:
            try:
                self._negotiate()
            except ConnectionLost as error:
                raise BrokerUnreachable(str(error)) from error

    @property
    def closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True

    def _exchange(self, request: Request, version: int, timeout_s: float) -> memoryview:
        self._correlation_id += 1
        header = RequestHeader(request.__schema__.api_key, version, self._correlation_id, self._client_id)
        try:
            frame = bytearray(encode_request(header, request))[_SIZE_BYTES:]
        except UnencodableMessage as error:  # a text that is longer than Kafka's protocol has room for
            raise ClientError(str(error)) from error
        answering = self._here(frame) if self._node_id == self._side.services.node_id else self._there(frame, timeout_s)
        try:
            answer = self._node_loop.run(answering, timeout_s)
        except (TimeoutError, CallTimedOut):
            self.close()
            raise RequestTimedOut(f"node {self._node_id} did not answer within {timeout_s:g} s") from None
        except PeerUnavailable as error:
            self.close()
            if not error.may_have_arrived:
                raise BrokerUnreachable(f"node {self._node_id} cannot be reached: {error}") from error
            raise ConnectionLost(f"node {self._node_id}: {error}") from error
        except (CallRefused, LookupError) as error:
            self.close()
            raise BrokerUnreachable(f"node {self._node_id} does not answer this one: {error}") from error
        except Disconnect as error:
            self.close()
            raise ConnectionLost(f"node {self._node_id} did not answer: {error}") from error
        self._wait_for_quota()
        return memoryview(answer)[_SIZE_BYTES:]

    async def _here(self, frame: bytearray) -> bytes:
        return await answered(self._side, frame, self._peer)

    async def _there(self, frame: bytearray, timeout_s: float) -> bytes:
        peer = self._peer
        answer, peer.throttled_seconds = await self._side.others.ask(
            self._node_id, peer.principal, peer.host, peer.listener, bytes(frame), timeout_s
        )
        return answer

    def _wait_for_quota(self) -> None:
        """Waits as a client's connection would, before its next request."""
        waits_s, self._peer.throttled_seconds = self._peer.throttled_seconds, 0.0
        if waits_s > 0:
            time.sleep(min(waits_s, THROTTLED_SECONDS_MAX))


async def answered(side: NodeSide, frame: bytearray, peer: Peer) -> bytes:
    """Returns the frame that answers, with its size. Raises Disconnect."""
    response = await dispatch_without_connection(side.dispatch, side.services.scheduler, frame, peer)
    if response is None:
        raise Disconnect("there is no answer to this")
    return b"".join(response)
