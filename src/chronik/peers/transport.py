"""The peers' port and the links to the peers: messages and calls between the nodes of a cluster.

Every node dials every other and sends on its own connection only; what it accepts it listens to. So each direction
has one ordered stream, and answers to calls, which may be large, never stand before a leader's heartbeats.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from chronik.config import Address
from chronik.errors import BadMessage, invariant
from chronik.files import Buffer
from chronik.limits import CLUSTER_MEMBERS_MAX
from chronik.listeners import naming
from chronik.peers.calls import PeerCalls
from chronik.peers.connection import PeerConnection
from chronik.peers.frames import Frame, FrameKind, encode_frame
from chronik.peers.handshake import AcceptorHandshake, Identity
from chronik.peers.link import PeerLink
from chronik.peers.securing import PeerTls
from chronik.peers.strangers import ACCEPTED_AT_ONCE_MAX, Strangers


class MessageReceiver(Protocol):
    def messages_received(self, peer: int, messages: Sequence[Buffer]) -> None:
        """May raise BadMessage; then the connection is closed."""

    def peer_unreachable(self, peer: int) -> None:
        """Messages for the peer were dropped."""

    def peer_reached(self, peer: int) -> None:
        """There is a connection to the peer, or from it."""

    def peer_gone(self, peer: int) -> None:
        """Its port refuses, and it holds no connection to us: its process has ended. Is called again and again."""


class PeerTransport:
    """Call `bind`, then `start`. `on_fatal` is called when a part of it ends that never should."""

    def __init__(
        self,
        identity: Identity,
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
        self._receiver: MessageReceiver | None = None
        self._server: asyncio.Server | None = None
        self._links: dict[int, PeerLink] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._addresses = dict(peers)
        self._strangers = Strangers(address.host for address in peers.values())
        self._accepted: dict[int, PeerConnection] = {}
        self._all_closed = asyncio.Event()
        self.when_connected: list[Callable[[int], None]] = []
        """Called with a peer's id when this node is connected to it, and calls to it can be made."""
        self.calls: Final = PeerCalls(self._send_request)

    # ---------------------------------------------------------------------------------------------------------- life

    async def bind(self) -> Address:
        """Takes the port, and returns its address (a port of 0 becomes a real one). Raises OSError."""
        loop = asyncio.get_running_loop()
        with naming(f"raft = {str(self._address)!r}"):
            self._server = await loop.create_server(
                self._new_connection,
                self._address.host,
                self._address.port,
                backlog=ACCEPTED_AT_ONCE_MAX,
                start_serving=False,
            )
        return Address(self._address.host, self._server.sockets[0].getsockname()[1])

    async def start(self, receiver: MessageReceiver) -> None:
        """Begins to dial the peers, and to listen to them."""
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
            self._hang_up(node_id)
        await asyncio.gather(*tasks, return_exceptions=True)
        # Close also those that come at the last moment.
        while connections := [*self._strangers.all(), *self._accepted.values()]:
            for connection in connections:
                connection.close("the node stops", logging.DEBUG)
            self._all_closed.clear()
            await self._all_closed.wait()

    def set_peer(self, node_id: int, address: Address) -> None:
        """Adds a peer, or notes where it has moved to."""
        if node_id == self._identity.node_id or self._addresses.get(node_id) == address:
            return
        is_room = node_id in self._addresses or len(self._addresses) < CLUSTER_MEMBERS_MAX
        invariant(is_room, "more peers than a cluster has")
        self._addresses[node_id] = address
        self._strangers.know(address.host)
        if self._receiver is not None:
            self._hang_up(node_id)
            self._dial(node_id, address)

    def remove_peer(self, node_id: int) -> None:
        """Hangs up. The peer may dial again, and ask why."""
        self._addresses.pop(node_id, None)
        self._hang_up(node_id)
        accepted = self._accepted.get(node_id)
        if accepted is not None:
            accepted.close("the node does not belong to the cluster any more")

    @property
    def addresses(self) -> Mapping[int, Address]:
        """Where peers are dialled; this node may be among them."""
        return self._addresses

    def _dial(self, node_id: int, address: Address) -> None:
        if node_id == self._identity.node_id:
            return
        link = self._links[node_id] = PeerLink(self._identity, node_id, address, self, self._random, self._tls)
        task = asyncio.get_running_loop().create_task(link.run(), name=f"link to node {node_id}")
        task.add_done_callback(self._link_ended)
        self._tasks[node_id] = task

    def _hang_up(self, node_id: int) -> None:
        task = self._tasks.pop(node_id, None)
        if task is not None:
            task.cancel()
            del self._links[node_id]
            self.calls.lost(node_id)

    def _link_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_fatal(error)

    # -------------------------------------------------------------------------------------------------------- sending

    @property
    def connected_peers(self) -> list[int]:
        """The peers to whom something can be sent now."""
        return sorted(node_id for node_id, link in self._links.items() if link.is_connected)

    def gone_seconds(self, peer: int) -> float:
        """For how long the peer's port has refused every dial; 0 as soon as it does not, or while the peer holds a
        connection to us. A living process refuses nobody, however busy or cut off it is."""
        link = self._links.get(peer)
        return 0.0 if link is None or peer in self._accepted else link.refused_seconds

    def queued_bytes(self, peer: int) -> int:
        link = self._links.get(peer)
        return link.queue.size_bytes if link is not None else 0

    def send(self, messages: Sequence[tuple[int, bytes]]) -> None:
        """Sends each to its peer without waiting. What finds no room is dropped, oldest first; the receiver is told."""
        touched: dict[int, PeerLink] = {}
        unreachable: dict[int, None] = {}
        for peer, message in messages:
            link = self._links.get(peer)
            if link is None:
                unreachable[peer] = None
                continue
            touched[peer] = link
            if not link.queue.put_message(encode_frame(FrameKind.MESSAGE, message)):
                unreachable[peer] = None
        for link in touched.values():
            link.flush()
        for peer in unreachable:
            self._tell_unreachable(peer)

    def _send_request(self, peer: int, frame: bytes) -> bool:
        link = self._links.get(peer)
        if link is None or not link.is_connected or not link.queue.put_call(frame):
            return False
        link.flush()
        return True

    def _tell_unreachable(self, peer: int) -> None:
        if self._receiver is not None:
            self._receiver.peer_unreachable(peer)

    def _tell_reached(self, peer: int) -> None:
        if self._receiver is not None:
            self._receiver.peer_reached(peer)

    # ------------------------------------------------------------------------------------------------ the links' side

    def answer_received(self, peer: int, content: Buffer) -> None:
        self.calls.answered(peer, content)

    def link_opened(self, peer: int) -> None:
        self._tell_reached(peer)
        for tell in self.when_connected:
            tell(peer)

    def link_lost(self, peer: int) -> None:
        self.calls.lost(peer)
        self._tell_unreachable(peer)

    def link_refused(self, peer: int) -> None:
        if self._receiver is not None and peer not in self._accepted:
            self._receiver.peer_gone(peer)

    # --------------------------------------------------------------------------------------- what others have dialled

    def _new_connection(self) -> asyncio.BaseProtocol:
        connection = PeerConnection(self, AcceptorHandshake(self._identity))
        pushed_out = self._strangers.add(connection)
        if pushed_out is not None:
            pushed_out.close("too many unauthenticated connections", logging.WARNING)
        return connection if self._tls is None else self._tls.accept(connection)

    def connection_opened(self, connection: PeerConnection) -> None:
        self._strangers.discard(connection)
        self._strangers.know(connection.host)
        before = self._accepted.get(connection.peer)
        if before is None and len(self._accepted) >= CLUSTER_MEMBERS_MAX:
            connection.close(f"{CLUSTER_MEMBERS_MAX} nodes are connected", logging.WARNING)
            return
        self._accepted[connection.peer] = connection
        if before is not None:
            before.close("the node has dialled again")
        link = self._links.get(connection.peer)
        if link is not None:
            link.dial_now()
        self._tell_reached(connection.peer)

    def frames_received(self, connection: PeerConnection, frames: Sequence[Frame]) -> None:
        messages: list[Buffer] = []
        requests: list[Buffer] = []
        for frame in frames:
            if frame.kind is FrameKind.MESSAGE:
                messages.append(frame.content)
            elif frame.kind is FrameKind.REQUEST:
                requests.append(frame.content)
            else:
                raise BadMessage(f"a {frame.kind.name.lower()} where only messages and requests travel")
        if messages and self._receiver is not None:
            self._receiver.messages_received(connection.peer, messages)
        for request in requests:  # nothing is done for a peer whose messages are bad
            self.calls.asked(connection, request)

    def writing_resumed(self, connection: PeerConnection) -> None:
        """Answers are not queued: see `calls.ANSWERS_UNSENT_BYTES_MAX`."""

    def connection_closed(self, connection: PeerConnection) -> None:
        self.calls.forget(connection)
        self._strangers.discard(connection)
        if self._accepted.get(connection.peer) is connection:
            del self._accepted[connection.peer]
        self._all_closed.set()
