"""The peer listener and the links to all peers, which carry messages and calls between the nodes of a cluster.

Every node dials every other node and sends requests and messages on its own connection only. Each direction is thus one
ordered stream, and large call responses never delay a leader's heartbeats.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from chronik.config import Address
from chronik.errors import InvalidPeerMessage, check_invariant
from chronik.files import Buffer
from chronik.limits import CLUSTER_MEMBERS_MAX
from chronik.listeners import explain_bind_error
from chronik.peers.calls import PeerCalls
from chronik.peers.connection import PeerConnection
from chronik.peers.frames import Frame, FrameKind, encode_frame
from chronik.peers.handshake import AcceptorHandshake, PeerIdentity
from chronik.peers.link import PeerLink
from chronik.peers.tls import PeerTls

UNAUTHENTICATED_MAX: Final = 1024
"""The maximum number of unauthenticated connections to the peer listener.

Far more than the number of members, and twice the number accepted per event-loop iteration, so that no connection is
evicted before its first data can be read.
"""
LISTEN_BACKLOG: Final = UNAUTHENTICATED_MAX // 2
"""The maximum number of TCP connections that wait to be accepted by the peer listener."""
PRIORITIES: Final = 4


class UnauthenticatedConnections:
    """The connections to the peer listener that are not authenticated yet, in the order of their eviction.

    Their number is limited separately from the peers. When the limit is reached, a new connection evicts another
    unauthenticated one, never a peer, so that a flood of connections evicts mostly its own. A restarting node sends its
    hello within milliseconds, and after that its connection is among the last to be evicted.
    """

    def __init__(self, known_hosts: Iterable[str] = ()) -> None:
        """Create an empty collection. Connections from the hosts of peers (`known_hosts`) are evicted last."""
        self._by_priority: list[dict[PeerConnection, None]] = [{} for _ in range(PRIORITIES)]  # oldest first
        self._known_hosts = set(known_hosts)

    def __len__(self) -> int:
        return sum(map(len, self._by_priority))

    def list_connections(self) -> list[PeerConnection]:
        return [connection for each in self._by_priority for connection in each]

    def add_known_host(self, host: str) -> None:
        """Add a peer's host, whose connections are evicted last."""
        self._known_hosts.add(host)

    def add(self, connection: PeerConnection) -> PeerConnection | None:
        """Add a connection. If the limit is exceeded, remove another connection and return it to be closed."""
        evicted = self._pop_connection_to_evict() if len(self) >= UNAUTHENTICATED_MAX else None
        self._by_priority[0][connection] = None
        return evicted

    def discard(self, connection: PeerConnection) -> None:
        for each in self._by_priority:
            each.pop(connection, None)

    def _pop_connection_to_evict(self) -> PeerConnection | None:
        """Remove and return the oldest of the connections with the lowest eviction priority.

        Priorities are updated lazily: each connection moves up at most three times, so the cost per connection is
        constant.
        """
        for priority, connections in enumerate(self._by_priority):
            while connections:
                connection = next(iter(connections))
                del connections[connection]
                current_priority = self._compute_eviction_priority(connection)
                if current_priority <= priority:
                    return connection
                self._by_priority[current_priority][connection] = None
        return None

    def _compute_eviction_priority(self, connection: PeerConnection) -> int:
        """Return the connection's priority: highest with a hello from the host of a peer, lowest with neither."""
        return 2 * connection.has_received_hello + (connection.host in self._known_hosts)


class PeerMessageReceiver(Protocol):
    """The interface of the object that receives Raft messages and connection events from the peer transport."""

    def messages_received(self, peer: int, messages: Sequence[Buffer]) -> None:
        """Handle messages received from a peer. Raise InvalidPeerMessage to close the connection."""

    def peer_unreachable(self, peer: int) -> None:
        """Handle the loss of messages to a peer, for example because its connection was lost."""

    def peer_connected(self, peer: int) -> None:
        """Handle a new connection to or from a peer."""

    def peer_down(self, peer: int) -> None:
        """Handle a peer whose process has stopped, as its port refuses connections. May be called repeatedly."""


class PeerTransport:
    """The transport of Raft messages and calls between this node and its peers.

    `on_fatal` is called if a background task fails unexpectedly.
    """

    def __init__(
        self,
        identity: PeerIdentity,
        address: Address,
        peers: Mapping[int, Address],
        on_fatal: Callable[[BaseException], None],
        randomness: random.Random | None = None,
        tls: PeerTls | None = None,
    ) -> None:
        self._identity = identity
        self._address = address
        self._on_fatal = on_fatal
        self._random = randomness or random.Random()
        self._tls = tls
        self._receiver: PeerMessageReceiver | None = None
        self._server: asyncio.Server | None = None
        self._links: dict[int, PeerLink] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._addresses = dict(peers)
        self._unauthenticated = UnauthenticatedConnections(address.host for address in peers.values())
        self._accepted: dict[int, PeerConnection] = {}
        self._all_closed = asyncio.Event()
        self.on_connected: list[Callable[[int], None]] = []
        """The callbacks that receive a peer's node id after this node has connected to the peer."""
        self.calls: Final = PeerCalls(self._send_request)

    # ------------------------------------------------------------------------------------------------------ lifecycle

    async def bind(self) -> Address:
        """Bind the port of the peer listener and return its address. Raises OSError."""
        loop = asyncio.get_running_loop()
        with explain_bind_error(f"raft = {str(self._address)!r}"):
            self._server = await loop.create_server(
                self._create_connection,
                self._address.host,
                self._address.port,
                backlog=LISTEN_BACKLOG,
                start_serving=False,
            )
        return Address(self._address.host, self._server.sockets[0].getsockname()[1])

    async def start(self, receiver: PeerMessageReceiver) -> None:
        """Start accepting connections from peers and connecting to them."""
        if self._server is None:
            await self.bind()
        assert self._server is not None
        self._receiver = receiver
        for node_id, address in self._addresses.items():
            self._dial(node_id, address)
        await self._server.start_serving()

    async def stop(self) -> None:
        self._receiver = None
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = list(self._tasks.values())
        for node_id in list(self._tasks):
            self._close_link(node_id)
        await asyncio.gather(*tasks, return_exceptions=True)
        # Repeat for connections that are accepted during the shutdown.
        while connections := [*self._unauthenticated.list_connections(), *self._accepted.values()]:
            for connection in connections:
                connection.close("the node is shutting down", logging.DEBUG)
            self._all_closed.clear()
            await self._all_closed.wait()

    def set_peer(self, node_id: int, address: Address) -> None:
        """Add a peer, or change the address at which this node connects to the peer."""
        if node_id == self._identity.node_id or self._addresses.get(node_id) == address:
            return
        has_capacity = node_id in self._addresses or len(self._addresses) < CLUSTER_MEMBERS_MAX
        check_invariant(has_capacity, f"peer transport: more than {CLUSTER_MEMBERS_MAX} peers")
        self._addresses[node_id] = address
        self._unauthenticated.add_known_host(address.host)
        if self._receiver is not None:
            self._close_link(node_id)
            self._dial(node_id, address)

    def remove_peer(self, node_id: int) -> None:
        """Close the connections with a peer that was removed from the cluster."""
        self._addresses.pop(node_id, None)
        self._close_link(node_id)
        accepted = self._accepted.get(node_id)
        if accepted is not None:
            accepted.close("the node was removed from the cluster")

    @property
    def addresses(self) -> Mapping[int, Address]:
        """The addresses of the peers by node id, which may include the address of this node."""
        return self._addresses

    def _dial(self, node_id: int, address: Address) -> None:
        if node_id == self._identity.node_id:
            return
        link = self._links[node_id] = PeerLink(self._identity, node_id, address, self, self._random, self._tls)
        task = asyncio.get_running_loop().create_task(link.run(), name=f"link to node {node_id}")
        task.add_done_callback(self._on_link_task_done)
        self._tasks[node_id] = task

    def _close_link(self, node_id: int) -> None:
        task = self._tasks.pop(node_id, None)
        if task is not None:
            task.cancel()
            del self._links[node_id]
            self.calls.fail_pending_calls(node_id)

    def _on_link_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_fatal(error)

    # -------------------------------------------------------------------------------------------------------- sending

    @property
    def connected_peers(self) -> list[int]:
        """The node ids of the peers to which this node has an open connection."""
        return sorted(node_id for node_id, link in self._links.items() if link.is_connected)

    def down_seconds(self, peer: int) -> float:
        """Return the time in seconds for which a peer's port has been refusing connections.

        A refused connection means that the peer's process has stopped. Return 0 if the last dial was not refused or the
        peer has a connection to this node.
        """
        link = self._links.get(peer)
        return 0.0 if link is None or peer in self._accepted else link.refused_seconds

    def get_queued_bytes(self, peer: int) -> int:
        link = self._links.get(peer)
        return link.queue.size_bytes if link is not None else 0

    def send(self, messages: Sequence[tuple[int, bytes]]) -> None:
        """Queue messages to peers. If a peer's queue is full, drop its oldest messages and report it as unreachable."""
        links_to_flush: dict[int, PeerLink] = {}
        unreachable: dict[int, None] = {}
        for peer, message in messages:
            link = self._links.get(peer)
            if link is None:
                unreachable[peer] = None
                continue
            links_to_flush[peer] = link
            if not link.queue.put_message(encode_frame(FrameKind.MESSAGE, message)):
                unreachable[peer] = None
        for link in links_to_flush.values():
            link.flush()
        for peer in unreachable:
            self._notify_peer_unreachable(peer)

    def _send_request(self, peer: int, frame: bytes) -> bool:
        link = self._links.get(peer)
        if link is None or not link.is_connected or not link.queue.put_call(frame):
            return False
        link.flush()
        return True

    def _notify_peer_unreachable(self, peer: int) -> None:
        if self._receiver is not None:
            self._receiver.peer_unreachable(peer)

    def _notify_peer_connected(self, peer: int) -> None:
        if self._receiver is not None:
            self._receiver.peer_connected(peer)

    # ----------------------------------------------------------------------------------------------------- link
    # callbacks

    def response_received(self, peer: int, content: Buffer) -> None:
        self.calls.on_response(peer, content)

    def link_opened(self, peer: int) -> None:
        self._notify_peer_connected(peer)
        for callback in self.on_connected:
            callback(peer)

    def link_lost(self, peer: int) -> None:
        self.calls.fail_pending_calls(peer)
        self._notify_peer_unreachable(peer)

    def link_refused(self, peer: int) -> None:
        if self._receiver is not None and peer not in self._accepted:
            self._receiver.peer_down(peer)

    # -------------------------------------------------------------------------------------------- incoming connections

    def _create_connection(self) -> asyncio.BaseProtocol:
        connection = PeerConnection(self, AcceptorHandshake(self._identity))
        evicted = self._unauthenticated.add(connection)
        if evicted is not None:
            evicted.close("too many unauthenticated connections", logging.WARNING)
        return connection if self._tls is None else self._tls.accept(connection)

    def connection_opened(self, connection: PeerConnection) -> None:
        self._unauthenticated.discard(connection)
        self._unauthenticated.add_known_host(connection.host)
        previous = self._accepted.get(connection.peer)
        if previous is None and len(self._accepted) >= CLUSTER_MEMBERS_MAX:
            connection.close(f"maximum of {CLUSTER_MEMBERS_MAX} connected nodes reached", logging.WARNING)
            return
        self._accepted[connection.peer] = connection
        if previous is not None:
            previous.close("replaced by a newer connection of the same node")
        link = self._links.get(connection.peer)
        if link is not None:
            link.dial_now()
        self._notify_peer_connected(connection.peer)

    def frames_received(self, connection: PeerConnection, frames: Sequence[Frame]) -> None:
        messages: list[Buffer] = []
        requests: list[Buffer] = []
        for frame in frames:
            if frame.kind is FrameKind.MESSAGE:
                messages.append(frame.content)
            elif frame.kind is FrameKind.REQUEST:
                requests.append(frame.content)
            else:
                raise InvalidPeerMessage(f"unexpected {frame.kind.name.lower()} frame on an incoming connection")
        if messages and self._receiver is not None:
            self._receiver.messages_received(connection.peer, messages)
        for request in requests:  # after the messages, so that a peer with bad messages is not served
            self.calls.on_request(connection, request)

    def writing_resumed(self, connection: PeerConnection) -> None:
        """Do nothing, because responses are written without a queue (see `calls.UNSENT_RESPONSE_BYTES_MAX`)."""

    def connection_closed(self, connection: PeerConnection) -> None:
        self.calls.cancel_requests(connection)
        self._unauthenticated.discard(connection)
        if self._accepted.get(connection.peer) is connection:
            del self._accepted[connection.peer]
        self._all_closed.set()
