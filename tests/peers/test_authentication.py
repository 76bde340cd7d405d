from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import cast

import msgspec
import pytest

from chronik.errors import ConfigError
from chronik.peers import handshake, transport
from chronik.peers.connection import PeerConnection
from chronik.peers.frames import (
    FRAME_BYTES_MAX,
    HANDSHAKE_BYTES_MAX,
    RESPONSE_FRAME_BYTES_MAX,
    FrameKind,
    InvalidPeerFrame,
    encode_frame,
)
from chronik.peers.handshake import (
    AcceptorHandshake,
    DialerHandshake,
    HandshakeChallenge,
    HandshakeFailed,
    Hello,
    PeerIdentity,
    derive_identity,
)
from chronik.peers.transport import PeerTransport
from tests.peers.helpers import (
    LOCALHOST,
    SECRET,
    connected_client,
    feed_bytes,
    identity,
    listening_node,
    new_frame_decoder,
    run,
    until,
)


def closing_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in map(logging.LogRecord.getMessage, caplog.records) if "unauthenticated peer" in line]


# --------------------------------------------------------------------------------------------------------- handshake


def complete_handshake(dialer: DialerHandshake, acceptor: AcceptorHandshake) -> None:
    challenge = acceptor.receive(dialer.start())
    proof = dialer.receive(challenge)
    assert proof is not None
    assert dialer.receive(acceptor.receive(proof)) is None


def test_handshake_authenticates_both_ends() -> None:
    dialer, acceptor = DialerHandshake(identity(2), 1), AcceptorHandshake(identity(1))
    complete_handshake(dialer, acceptor)
    assert (dialer.is_done, dialer.peer) == (True, 1)
    assert (acceptor.is_done, acceptor.peer) == (True, 2)


@pytest.mark.parametrize(
    ("dialer", "target", "reason"),
    [
        (identity(2, "another secret of some length"), 1, "secret"),
        (identity(2, cluster="other"), 1, "cluster 'other'"),
        (identity(2), 3, "hello is for node 3"),
        (identity(1), 1, "invalid source node id 1"),
    ],
)
def test_handshake_with_wrong_identity_fails(dialer: PeerIdentity, target: int, reason: str) -> None:
    with pytest.raises(HandshakeFailed, match=reason):
        complete_handshake(DialerHandshake(dialer, target), AcceptorHandshake(identity(1)))


def test_acceptor_without_secret_is_detected() -> None:
    dialer = DialerHandshake(identity(2), 1)
    hello = dialer.start()
    impostor = AcceptorHandshake(identity(1, "a guess of some length"))
    dialer.receive(impostor.receive(hello))
    answer = msgspec.msgpack.encode(handshake.HandshakeProof(bytes(32)))
    with pytest.raises(HandshakeFailed):
        dialer.receive(answer)
    assert not dialer.is_done


def test_replayed_proof_is_rejected() -> None:
    dialer, acceptor = DialerHandshake(identity(2), 1), AcceptorHandshake(identity(1))
    hello = dialer.start()
    proof = dialer.receive(acceptor.receive(hello))
    assert proof is not None
    acceptor.receive(proof)
    again = AcceptorHandshake(identity(1))
    again.receive(hello)
    with pytest.raises(HandshakeFailed):
        again.receive(proof)


def test_reflected_proof_is_rejected() -> None:
    dialer, acceptor = DialerHandshake(identity(2), 1), AcceptorHandshake(identity(1))
    proof = dialer.receive(acceptor.receive(dialer.start()))
    assert proof is not None
    with pytest.raises(HandshakeFailed):
        dialer.receive(proof)


def test_proof_for_other_node_is_rejected() -> None:
    """A man in the middle forwards node 2's messages to node 3 as if they were addressed to it."""
    dialer, third = DialerHandshake(identity(2), 1), AcceptorHandshake(identity(3))
    hello = msgspec.msgpack.decode(dialer.start(), type=Hello)
    forged = Hello(hello.magic, hello.version, hello.cluster, hello.source, 3, hello.nonce)
    proof = dialer.receive(third.receive(msgspec.msgpack.encode(forged)))
    assert proof is not None
    with pytest.raises(HandshakeFailed):
        third.receive(proof)


def test_unsupported_protocol_version_is_rejected() -> None:
    hello = Hello(handshake.MAGIC, handshake.VERSION + 1, "test", 2, 1, bytes(32))
    with pytest.raises(HandshakeFailed, match="version 2"):
        AcceptorHandshake(identity(1)).receive(msgspec.msgpack.encode(hello))


@pytest.mark.parametrize(
    "step", [b"", b"\xff" * 100, b"\x91" * 400, msgspec.msgpack.encode(HandshakeChallenge(bytes(32)))]
)
def test_malformed_handshake_message_is_rejected(step: bytes) -> None:
    with pytest.raises(HandshakeFailed):
        AcceptorHandshake(identity(1)).receive(step)


def test_largest_hello_fits_handshake_frame() -> None:
    largest = PeerIdentity("ä" * (handshake.CLUSTER_NAME_BYTES_MAX // 2), 2**63 - 2, bytes(32))
    frame = encode_frame(FrameKind.HANDSHAKE, DialerHandshake(largest, 2**63 - 1).start())
    assert len(frame) <= HANDSHAKE_BYTES_MAX


def test_cluster_without_secret_allows_loopback_only(caplog: pytest.LogCaptureFixture) -> None:
    first = derive_identity("one", 1, None, [LOCALHOST, "localhost", "::1"])
    assert "has no secret" in caplog.text
    assert first.key != derive_identity("two", 1, None, [LOCALHOST]).key
    assert first.key != derive_identity("one", 1, "one" * 10, [LOCALHOST]).key
    for host in ("10.0.0.1", "0.0.0.0", "node-2.example"):
        with pytest.raises(ConfigError, match="secret"):
            derive_identity("one", 1, None, [LOCALHOST, host])
    derive_identity("one", 1, SECRET, ["10.0.0.1"])
    with pytest.raises(ConfigError, match="16 characters"):
        derive_identity("one", 1, "x" * 15, [])
    derive_identity("one", 1, "x" * 16, [])
    with pytest.raises(ConfigError, match="name"):
        derive_identity("x" * (handshake.CLUSTER_NAME_BYTES_MAX + 1), 1, SECRET, [])


# -------------------------------------------------------------------------------------------------------------- frames


def test_frames_are_decoded_for_any_split_of_bytes() -> None:
    frames = [encode_frame(FrameKind.MESSAGE, bytes([n]) * n) for n in range(20)]
    stream = b"".join(frames)
    for step in (1, 3, 7, len(stream)):
        splitter = new_frame_decoder()
        found = []
        for begin in range(0, len(stream), step):
            feed_bytes(splitter, stream[begin : begin + step])
            while (frame := splitter.next_frame()) is not None:
                found.append(frame.content)
        assert found == [bytes([n]) * n for n in range(20)]


def test_large_frame_is_received_in_place_and_buffer_reused() -> None:
    for step in (1000, 65_536, 100_000):
        splitter = new_frame_decoder()
        splitter.allow_large_frames()
        kept = b""
        for size in (70_000, 300_000, 5, 299_999, 300_000):
            stream = encode_frame(FrameKind.RESPONSE, bytes([size % 251]) * size)
            found: list[bytes] = []
            for begin in range(0, len(stream), step):
                feed_bytes(splitter, stream[begin : begin + step], found)
            assert found == [bytes([size % 251]) * size]
            kept = found[0]
        assert len(kept) == 300_000


def test_referenced_buffer_is_not_reused() -> None:
    splitter = new_frame_decoder()
    splitter.allow_large_frames()
    frames = []
    for letter in (b"a", b"b", b"c"):
        stream = encode_frame(FrameKind.RESPONSE, letter * 200_000)
        for begin in range(0, len(stream), 65_536):
            feed_bytes(splitter, stream[begin : begin + 65_536])
            while (frame := splitter.next_frame()) is not None:
                frames.append(frame.content)
    assert [bytes(content) for content in frames] == [letter * 200_000 for letter in (b"a", b"b", b"c")]


def test_unauthenticated_client_may_send_only_small_frames() -> None:
    splitter = new_frame_decoder()
    feed_bytes(splitter, HANDSHAKE_BYTES_MAX.to_bytes(4, "big"))
    assert splitter.next_frame() is None
    too_large = new_frame_decoder()
    feed_bytes(too_large, (HANDSHAKE_BYTES_MAX + 1).to_bytes(4, "big"))
    with pytest.raises(InvalidPeerFrame):
        too_large.next_frame()


def head(size: int, kind: FrameKind) -> bytes:
    return size.to_bytes(4, "big") + bytes((kind,))


def test_authenticated_peer_frame_size_is_limited() -> None:
    for size, kind in ((FRAME_BYTES_MAX, FrameKind.REQUEST), (RESPONSE_FRAME_BYTES_MAX, FrameKind.RESPONSE)):
        splitter = new_frame_decoder()
        splitter.allow_large_frames()
        feed_bytes(splitter, head(size, kind))
        assert splitter.next_frame() is None
    for size, kind in (
        (0, FrameKind.MESSAGE),
        (FRAME_BYTES_MAX + 1, FrameKind.MESSAGE),
        (FRAME_BYTES_MAX + 1, FrameKind.REQUEST),
        (RESPONSE_FRAME_BYTES_MAX + 1, FrameKind.RESPONSE),
        (2**32 - 1, FrameKind.RESPONSE),
    ):
        refused = new_frame_decoder()
        refused.allow_large_frames()
        feed_bytes(refused, head(size, kind))
        with pytest.raises(InvalidPeerFrame):
            refused.next_frame()


def test_unknown_frame_kind_is_rejected() -> None:
    splitter = new_frame_decoder()
    feed_bytes(splitter, b"\x00\x00\x00\x01\x09")
    with pytest.raises(InvalidPeerFrame, match="kind 9"):
        splitter.next_frame()


# ------------------------------------------------------------------------------------------------------ peer listener


def test_nodes_with_same_secret_exchange_messages() -> None:
    async def scenario() -> None:
        async with listening_node() as (address, inbox, _), connected_client(identity(2), address) as (client, _):
            messages = [b"message %d" % number for number in range(10)]
            client.send([(1, message) for message in messages])  # before the connection is established
            await until(lambda: len(inbox.messages) == 10)
            assert inbox.messages == messages

    run(scenario())


def test_wrong_secret_is_logged_and_no_message_accepted(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        caplog.set_level(logging.INFO, "chronik.raft")
        make_connection = identity(2, "another secret of some length")
        async with listening_node() as (address, inbox, _), connected_client(make_connection, address) as (client, _):
            client.send([(1, b"a message")])
            await until(lambda: any("secret" in line for line in closing_lines(caplog)))
            assert not client.connected_peers
            assert inbox.messages == []
        failures = [line for line in closing_lines(caplog) if "authentication failed" in line]
        assert 1 <= len(failures) <= 3  # redials become less frequent

    run(scenario())


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00\x00\x00\x13\x00\x12\x00\x03\x00\x00\x00\x07\x00\x06client\x00",  # a Kafka ApiVersions request
        b"\xff" * 1000,
        encode_frame(FrameKind.MESSAGE, b"a message"),
        encode_frame(FrameKind.HANDSHAKE, b"\x81" * 50),
        encode_frame(FrameKind.REQUEST, bytes(20)),
    ],
)
def test_invalid_first_bytes_close_connection_with_one_log_line(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        caplog.set_level(logging.INFO, "chronik.raft")
        async with listening_node() as (address, inbox, _):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(garbage)
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            await until(lambda: len(closing_lines(caplog)) == 1)
            assert inbox.messages == []

    run(scenario())


def test_silent_unauthenticated_connection_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("chronik.peers.connection.HANDSHAKE_SECONDS_MAX", 0.05)
        async with listening_node() as (address, _, _):
            reader, writer = await asyncio.open_connection(*address)
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            assert "handshake not completed within" in caplog.text

    run(scenario())


async def is_closed(reader: asyncio.StreamReader) -> bool:
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    return True


@pytest.mark.parametrize("held", [transport.UNAUTHENTICATED_MAX, transport.UNAUTHENTICATED_MAX + 1])
def test_oldest_unauthenticated_connection_is_evicted_at_limit(held: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with listening_node() as (address, _, server):
            opened = []
            for number in range(held):
                opened.append(await asyncio.open_connection(*address))
                expected = min(number + 1, transport.UNAUTHENTICATED_MAX)
                await until(lambda: len(server._unauthenticated) == expected)  # noqa: B023 (awaited in the same iteration)
            if held > transport.UNAUTHENTICATED_MAX:
                assert await is_closed(opened[0][0])
                assert "too many unauthenticated connections" in caplog.text
            assert len(server._unauthenticated) == transport.UNAUTHENTICATED_MAX
            for _, writer in opened:
                writer.close()
            await until(lambda: not server._unauthenticated)

    run(scenario())


def test_peer_connects_while_unauthenticated_limit_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("chronik.peers.connection.HANDSHAKE_SECONDS_MAX", 3600.0)  # only eviction frees a slot
        async with listening_node() as (address, _, server):
            silent = [await asyncio.open_connection(*address) for _ in range(transport.UNAUTHENTICATED_MAX)]
            await until(lambda: len(server._unauthenticated) == transport.UNAUTHENTICATED_MAX)
            async with connected_client(identity(2), address) as (client, _):
                await until(lambda: client.connected_peers == [1])
            for _, writer in silent:
                writer.close()

    run(scenario())


def test_peer_connects_during_connection_flood() -> None:
    async def scenario() -> None:
        async with listening_node() as (address, _, server):
            held: deque[asyncio.StreamWriter] = deque()

            async def connect_repeatedly() -> None:
                while True:
                    _, writer = await asyncio.open_connection(*address)
                    held.append(writer)
                    if len(held) > 2 * transport.UNAUTHENTICATED_MAX:
                        held.popleft().close()

            knocking = [asyncio.ensure_future(connect_repeatedly()) for _ in range(20)]
            await until(lambda: len(server._unauthenticated) == transport.UNAUTHENTICATED_MAX)
            async with connected_client(identity(2), address) as (client, _):
                await until(lambda: client.connected_peers == [1])
            for task in knocking:
                task.cancel()
            await asyncio.gather(*knocking, return_exceptions=True)
            for writer in held:
                writer.close()

    run(scenario())


def test_connections_with_hello_or_known_host_are_evicted_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.peers.transport.UNAUTHENTICATED_MAX", 4)

    def make_connection(host: str, *, has_sent_hello: bool = False) -> PeerConnection:
        acceptor = AcceptorHandshake(identity(1))
        if has_sent_hello:
            acceptor.receive(DialerHandshake(identity(2), 1).start())
        connection = PeerConnection(cast(PeerTransport, None), acceptor)
        connection.host = host
        return connection

    table = transport.UnauthenticatedConnections(["10.0.0.2"])
    table.add_known_host("10.0.0.3")
    order = [
        make_connection("10.0.0.2", has_sent_hello=True),
        make_connection("10.9.9.9", has_sent_hello=True),
        make_connection("10.0.0.3"),
        make_connection("10.9.9.9"),
    ]
    assert [table.add(each) for each in order] == [None] * 4
    assert [table.add(make_connection("10.0.0.2", has_sent_hello=True)) for _ in range(4)] == [*order[::-1]]
