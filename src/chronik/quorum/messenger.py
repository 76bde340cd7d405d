"""Raft's messages on the connections between nodes: encoded on their way out, decoded and checked on their way in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from chronik.errors import BadMessage
from chronik.files import Buffer
from chronik.peers.transport import PeerTransport
from chronik.quorum.peer_times import PeerTimes
from chronik.raft.events import Event, PeerGone, PeerReached, PeerUnreachable, Received
from chronik.raft.messages import AnyMessage, decode_message, encode_message


class Feed(Protocol):
    def __call__(self, *events: Event) -> None: ...


class Messenger:
    """Feeds the core with what the peers say, and whether they can be reached. `passes` says which messages get
    through, in either direction: to Raft the others are lost on the network."""

    def __init__(
        self,
        node_id: int,
        transport: PeerTransport,
        peer_times: PeerTimes,
        passes: Callable[[AnyMessage], bool],
        feed: Feed,
    ) -> None:
        self._node_id = node_id
        self._transport = transport
        self._peer_times = peer_times
        self._passes = passes
        self._feed = feed

    def send(self, messages: Sequence[AnyMessage]) -> None:
        """Never waits."""
        self._transport.send([(each.target, encode_message(each)) for each in messages if self._passes(each)])

    # --------------------------------------------------------------------------------------------- the transport's side

    def messages_received(self, peer: int, messages: Sequence[Buffer]) -> None:
        decoded = [self._checked(peer, decode_message(message)) for message in messages]
        passing = [Received(message) for message in decoded if self._passes(message)]
        if passing:
            self._peer_times.hear(peer, passing[-1].message.source_directory)
            self._feed(*passing)

    def _checked(self, peer: int, message: AnyMessage) -> AnyMessage:
        if message.source != peer or message.target != self._node_id:
            raise BadMessage(f"node {peer} sent a message from {message.source} to {message.target}")
        return message

    def peer_unreachable(self, peer: int) -> None:
        self._feed(PeerUnreachable(peer))

    def peer_reached(self, peer: int) -> None:
        self._feed(PeerReached(peer))

    def peer_gone(self, peer: int) -> None:
        self._feed(PeerGone(peer))
