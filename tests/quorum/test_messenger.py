"""The messenger passes valid Raft messages of authenticated peers to the core and closes connections with others.

Messages from another directory than the member's do not count as activity of the member.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from chronik.config import Address
from chronik.peers.transport import PeerTransport
from chronik.quorum.messenger import RaftMessenger
from chronik.quorum.peer_activity import PeerActivityTracker
from chronik.raft.events import MessageReceived, RaftEvent
from chronik.raft.membership import UNBOUND_DIRECTORY, Membership, RaftMember
from chronik.raft.messages import AnyRaftMessage, Heartbeat, encode_message
from tests.peers.helpers import ANY_PORT, connected_client, fail_on_fatal, identity, listening_node, run, until

OLD, NEW = bytes([1] * 16), bytes([2] * 16)


def heartbeat(source: int, target: int, term: int = 1) -> Heartbeat:
    directory = bytes([source]) * 16
    return Heartbeat(
        source=source,
        source_directory=directory,
        target=target,
        target_directory=bytes([target]) * 16,
        term=term,
        commit=0,
        round=0,
    )


def passes(message: AnyRaftMessage) -> bool:
    return message.term < 100


@asynccontextmanager
async def receiving_node() -> AsyncIterator[tuple[Address, list[AnyRaftMessage]]]:
    """Start node 1 and yield its address and the messages that its core receives."""
    heard: list[AnyRaftMessage] = []

    def feed(*events: RaftEvent) -> None:
        heard.extend(event.message for event in events if isinstance(event, MessageReceived))

    transport = PeerTransport(identity(1), ANY_PORT, {}, fail_on_fatal)
    address = await transport.bind()
    await transport.start(RaftMessenger(1, transport, PeerActivityTracker(), passes, feed))
    try:
        yield address, heard
    finally:
        await transport.stop()


def test_allowed_messages_are_received_unchanged() -> None:
    async def scenario() -> None:
        async with receiving_node() as (address, heard), connected_client(identity(2), address) as (client, _):
            sent = [heartbeat(2, 1, term) for term in (1, 2, 100, 3)]
            client.send([(1, encode_message(message)) for message in sent])
            await until(lambda: len(heard) == 3)
            assert heard == [sent[0], sent[1], sent[3]]

    run(scenario())


def test_disallowed_messages_are_not_sent() -> None:
    async def scenario() -> None:
        async with listening_node() as (address, inbox, _), connected_client(identity(2), address) as (client, _):
            messenger = RaftMessenger(2, client, PeerActivityTracker(), passes, lambda *events: None)
            messenger.send([heartbeat(2, 1, term) for term in (100, 1)])
            await until(lambda: len(inbox.messages) > 0)
            assert inbox.messages == [encode_message(heartbeat(2, 1, 1))]

    run(scenario())


def test_message_with_foreign_source_closes_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with receiving_node() as (address, heard), connected_client(identity(2), address) as (client, _):
            await until(lambda: client.connected_peers == [1])
            client.send([(1, encode_message(heartbeat(3, 1)))])
            await until(lambda: "a Raft message from node 3" in caplog.text)
            assert heard == []

    run(scenario())


def test_malformed_message_closes_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with receiving_node() as (address, heard), connected_client(identity(2), address) as (client, _):
            await until(lambda: client.connected_peers == [1])
            client.send([(1, b"\x01" + bytes(10))])
            await until(lambda: "malformed Raft message" in caplog.text)
            assert heard == []

    run(scenario())


def is_active(member_directory: bytes, directory_id: bytes) -> bool:
    times = PeerActivityTracker()
    times.record_contact(3, directory_id)
    times.update(Membership((RaftMember(3, member_directory, is_voter=True),)), {3: 7}, 7, 100.0)
    return 3 in times.by_peer


def test_member_is_active_only_on_its_directory() -> None:
    assert is_active(OLD, OLD)
    assert is_active(UNBOUND_DIRECTORY, NEW), "an unbound member may use any directory"
    assert not is_active(OLD, NEW)


def test_non_member_is_not_active() -> None:
    times = PeerActivityTracker()
    times.record_contact(4, OLD)
    times.update(Membership((RaftMember(3, OLD, is_voter=True),)), {3: 7}, 7, 100.0)
    assert times.by_peer == {}
