"""Raft messages on peer connections: encoding, decoding and validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from chronik.errors import InvalidPeerMessage
from chronik.files import Buffer
from chronik.peers.transport import PeerTransport
from chronik.quorum.peer_activity import PeerActivityTracker
from chronik.raft.events import MessageReceived, PeerConnected, PeerDown, PeerUnreachable, RaftEvent
from chronik.raft.messages import AnyRaftMessage, decode_message, encode_message


class QueueEvents(Protocol):
    """A function that queues events for the Raft node."""

    def __call__(self, *events: RaftEvent) -> None: ...


class RaftMessenger:
    """The adapter that encodes Raft messages for the peer transport and turns received messages into events.

    It passes received messages and the peers' reachability to the core. `passes` filters messages in both directions;
    the core treats dropped messages as lost on the network.
    """

    def __init__(
        self,
        node_id: int,
        transport: PeerTransport,
        peer_times: PeerActivityTracker,
        passes: Callable[[AnyRaftMessage], bool],
        feed: QueueEvents,
    ) -> None:
        self._node_id = node_id
        self._transport = transport
        self._peer_times = peer_times
        self._passes = passes
        self._feed = feed

    def send(self, messages: Sequence[AnyRaftMessage]) -> None:
        """Send Raft messages to other nodes without blocking."""
        self._transport.send([(each.target, encode_message(each)) for each in messages if self._passes(each)])

    # ------------------------------------------------------------------------------------------------ transport
    # callbacks

    def messages_received(self, peer: int, messages: Sequence[Buffer]) -> None:
        decoded = [self._check_message_addresses(peer, decode_message(message)) for message in messages]
        received = [MessageReceived(message) for message in decoded if self._passes(message)]
        if received:
            self._peer_times.record_contact(peer, received[-1].message.source_directory)
            self._feed(*received)

    def _check_message_addresses(self, peer: int, message: AnyRaftMessage) -> AnyRaftMessage:
        if message.source != peer or message.target != self._node_id:
            raise InvalidPeerMessage(
                f"node {peer} sent a Raft message from node {message.source} to node {message.target}"
            )
        return message

    def peer_unreachable(self, peer: int) -> None:
        self._feed(PeerUnreachable(peer))

    def peer_connected(self, peer: int) -> None:
        self._feed(PeerConnected(peer))

    def peer_down(self, peer: int) -> None:
        self._feed(PeerDown(peer))
