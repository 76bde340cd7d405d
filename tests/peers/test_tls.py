"""TLS between nodes: both ends present certificates, the secret is bound to them, and clusters migrate node by node."""

from __future__ import annotations

import asyncio
import itertools
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from chronik.config import Address
from chronik.files import Buffer
from chronik.peers.connection import PeerConnection
from chronik.peers.handshake import AcceptorHandshake, DialerHandshake, HandshakeFailed
from chronik.peers.link import PeerLink, _close_dialed_connection
from chronik.peers.tls import PeerTls
from chronik.peers.transport import PeerTransport
from chronik.scheduler import UNAUTHENTICATED_SECONDS_MAX, Scheduler
from chronik.tls.transport import TlsTransport
from tests.peers.helpers import ANY_PORT, DEADLINE_SECONDS, Inbox, fail_on_fatal, identity, run, until
from tests.peers.test_calls import ECHO
from tests.tls.certificates import DEFAULT_CA, certificate_authority, issue_certificate, replace_file
from tests.tls.test_transport import FakeSocketTransport

PER_ITERATION = 5
MANY = 10 * PER_ITERATION


def peer_tls(folder: Path, name: str, by: str = DEFAULT_CA, *, is_required: bool = True) -> PeerTls:
    store = replace_file(folder / f"{name}.pem", issue_certificate(f"CN={name}", by).keystore_pem)
    return PeerTls(
        store,
        replace_file(folder / f"trusted by {name}.pem", certificate_authority(by).certificate_pem),
        is_required=is_required,
    )


def closed(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines about failed connections."""
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if "unauthenticated peer connection" in line or "during the handshake" in line]


class Node:
    def __init__(self, transport: PeerTransport, inbox: Inbox, address: Address) -> None:
        self.transport = transport
        self.inbox = inbox
        self.address = address


@asynccontextmanager
async def node(
    node_id: int, tls: PeerTls | None, peers: dict[int, Address] | None = None, where: Address = ANY_PORT
) -> AsyncIterator[Node]:
    transport = PeerTransport(identity(node_id), where, peers or {}, fail_on_fatal, tls=tls)
    address = await transport.bind()
    inbox = Inbox()
    await transport.start(inbox)
    try:
        yield Node(transport, inbox, address)
    finally:
        await transport.stop()


def test_small_and_large_messages_are_sent_over_tls(tmp_path: Path) -> None:
    async def scenario() -> None:
        large = os.urandom(20 << 20)
        async with (
            node(1, peer_tls(tmp_path, "one")) as one,
            node(2, peer_tls(tmp_path, "two"), {1: one.address}) as two,
        ):
            await until(lambda: two.transport.connected_peers == [1])
            two.transport.send([(1, b"small")])
            await until(lambda: one.inbox.messages == [b"small"])
            two.transport.send([(1, large), (1, b"after")])
            await until(lambda: len(one.inbox.messages) == 3)
            assert one.inbox.messages[1:] == [large, b"after"]

    run(scenario())


@pytest.mark.parametrize("with_tls", ["accepts", "dials"])
def test_node_requiring_tls_rejects_plaintext_peers(
    tmp_path: Path, with_tls: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        tls = peer_tls(tmp_path, "one")
        accepts, dials = (tls, None) if with_tls == "accepts" else (None, tls)
        async with node(1, accepts) as one, node(2, dials, {1: one.address}) as two:
            await until(lambda: len(closed(caplog)) > 5)
            assert not two.transport.connected_peers
            assert not one.inbox.reached

    run(scenario())


def test_untrusted_certificate_is_rejected_despite_valid_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        untrusted = peer_tls(tmp_path, "unknown", by="another CA")
        async with node(1, peer_tls(tmp_path, "one")) as one, node(2, untrusted, {1: one.address}) as two:
            await until(lambda: len(closed(caplog)) > 5)
            assert not one.inbox.reached
            assert not two.transport.connected_peers
        assert any("the peer's certificate is not trusted" in line for line in closed(caplog))

    run(scenario())


def test_optional_tls_accepts_plaintext_peers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node(1, peer_tls(tmp_path, "one", is_required=False)) as one:
            async with (
                node(2, None, {1: one.address}) as plain,
                node(3, peer_tls(tmp_path, "three"), {1: one.address}) as tls,
            ):
                for each in (plain, tls):
                    await until(lambda each=each: each.transport.connected_peers == [1])  # type: ignore[misc]
                    each.transport.send([(1, b"x")])
                await until(lambda: one.inbox.messages == [b"x", b"x"])
            async with node(4, None) as old:
                one.transport.set_peer(4, old.address)
                await until(lambda: one.transport.connected_peers == [4])
                one.transport.send([(4, b"to one without")])
                await until(lambda: old.inbox.messages == [b"to one without"])
                where = old.address
            async with node(4, peer_tls(tmp_path, "four"), where=where) as new:
                await until(lambda: 4 in new.inbox.reached or one.transport.connected_peers == [4])
                await until(lambda: one.transport.connected_peers == [4])
                one.transport.send([(4, b"to one with")])
                await until(lambda: new.inbox.messages == [b"to one with"])

    run(scenario())


@asynccontextmanager
async def dialled(tls: PeerTls, accepts: Callable[[], asyncio.Protocol] = asyncio.Protocol) -> AsyncIterator[PeerLink]:
    """Yield a link to a server that accepts the connection and sends nothing."""
    owner = PeerTransport(identity(1), ANY_PORT, {}, fail_on_fatal)
    async with await asyncio.get_running_loop().create_server(accepts, *ANY_PORT) as server:
        yield PeerLink(identity(1), 2, Address(*server.sockets[0].getsockname()), owner, Random(1), tls)


class ClosingServer(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def test_abandoned_dial_does_not_count_as_tls_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, the next dial would not use TLS."""

    async def scenario() -> None:
        ended = record_closed(monkeypatch)
        async with dialled(peer_tls(tmp_path, "one", is_required=False)) as link:
            dial = asyncio.create_task(link._dial_once())
            await dial
            _close_dialed_connection(dial)
            await until(lambda: len(ended) == 1)
            assert not link._tls_failed
            assert isinstance(link._create_protocol_factory(ended[0])(), TlsTransport)

    run(scenario())


def test_dial_abandoned_while_connecting_does_not_count_as_tls_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uses asyncio's own loop, because uvloop does not report the end of such a connection."""

    async def scenario() -> None:
        ended = record_closed(monkeypatch)
        async with dialled(peer_tls(tmp_path, "one", is_required=False)) as link:
            began = TlsTransport.connection_made

            def begin(transport: TlsTransport, socket: asyncio.BaseTransport) -> None:
                began(transport, socket)
                dial.cancel()

            monkeypatch.setattr("chronik.tls.transport.TlsTransport.connection_made", begin)
            dial = asyncio.create_task(link._dial_once())
            await asyncio.wait([dial])
            assert dial.cancelled()
            await until(lambda: len(ended) == 1)
            assert not link._tls_failed

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE_SECONDS))


def test_dial_closed_by_peer_counts_as_tls_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        ended = record_closed(monkeypatch)
        tls = peer_tls(tmp_path, "one", is_required=False)
        async with dialled(tls, ClosingServer) as link:
            await link._dial_once()
            await until(lambda: len(ended) == 1)
            assert link._tls_failed

    run(scenario())


def record_closed(monkeypatch: pytest.MonkeyPatch) -> list[PeerConnection]:
    """Return a list to which each closed connection is added."""
    ended: list[PeerConnection] = []
    monkeypatch.setattr("chronik.peers.link.PeerLink.connection_closed", lambda _, connection: ended.append(connection))
    return ended


def test_stop_closes_unfinished_tls_handshakes(tmp_path: Path) -> None:
    async def scenario() -> None:
        for is_required in (True, False):
            async with node(1, peer_tls(tmp_path, "one", is_required=is_required)) as one:
                _, silent = await asyncio.open_connection(*one.address)
                _, begun = await asyncio.open_connection(*one.address)
                begun.write(b"\x16\x03\x01")
                await until(lambda: len(one.transport._unauthenticated) == 2)
                async with asyncio.timeout(5):
                    await one.transport.stop()
                silent.close()
                begun.close()

    run(scenario())


def test_man_in_the_middle_is_detected() -> None:
    """Each end sees the certificate of the man in the middle."""
    dialer, acceptor = DialerHandshake(identity(2), 1), AcceptorHandshake(identity(1))
    dialer.certificate_fingerprints = b"2" * 32 + b"m" * 32
    acceptor.certificate_fingerprints = b"m" * 32 + b"1" * 32
    with pytest.raises(HandshakeFailed, match="man-in-the-middle"):
        acceptor.receive(dialer.start())


def test_tls_and_plaintext_protocol_versions_are_incompatible() -> None:
    for with_tls in (True, False):
        dialer, acceptor = DialerHandshake(identity(2), 1), AcceptorHandshake(identity(1))
        (dialer if with_tls else acceptor).certificate_fingerprints = bytes(64)
        with pytest.raises(HandshakeFailed):
            acceptor.receive(dialer.start())


def test_reloaded_certificate_is_used_for_next_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        first, second = peer_tls(tmp_path, "one"), peer_tls(tmp_path, "two")
        before = first.context.loaded.fingerprint
        replace_file(tmp_path / "one.pem", certificate_authority().issue("CN=renewed").keystore_pem)
        assert first.context.reload_if_changed()
        assert first.context.loaded.fingerprint != before
        async with node(1, first) as one, node(2, second, {1: one.address}) as two:
            await until(lambda: two.transport.connected_peers == [1])

    run(scenario())


def hello() -> bytes:
    """Return the first TLS message of a client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


class IgnoringOwner:
    """An owner that ignores all callbacks."""

    def __getattr__(self, name: str) -> object:
        return lambda *_: None


class UnauthenticatedClient(FakeSocketTransport):
    answers = 0

    def write(self, data: object) -> None:
        self.answers += 1


def test_unauthenticated_handshakes_share_event_loop_fairly(tmp_path: Path) -> None:
    async def scenario() -> None:
        tls = peer_tls(tmp_path, "one")
        ticks = itertools.count()
        tls.scheduler = Scheduler(clock=lambda: next(ticks) * UNAUTHENTICATED_SECONDS_MAX / (PER_ITERATION - 0.5))
        many = []
        for _ in range(MANY):
            connection = PeerConnection(IgnoringOwner(), AcceptorHandshake(identity(1)))  # type: ignore[arg-type]
            many.append(UnauthenticatedClient(tls._create_acceptor(connection)))
            many[-1].deliver(hello())
        served: list[int] = []
        while not served or served[-1] < MANY:
            served.append(sum(each.answers for each in many))
            await asyncio.sleep(0)
        assert served[0] <= PER_ITERATION
        steps = [after - before for before, after in itertools.pairwise(served)]
        assert max(steps) <= PER_ITERATION
        assert len(steps) >= MANY // PER_ITERATION - 1
        for each in many:
            each.close()

    run(scenario())


def test_authenticated_peer_is_not_delayed_by_handshakes(tmp_path: Path) -> None:
    async def scenario() -> None:
        first, second = peer_tls(tmp_path, "one"), peer_tls(tmp_path, "two")
        async with node(1, first) as one, node(2, second, {1: one.address}) as two:
            await until(lambda: two.transport.connected_peers == [1])
            first.scheduler.may_run = lambda account: False  # type: ignore[method-assign]
            first.scheduler.submit = lambda account, work: None  # type: ignore[method-assign]
            large = bytes(20 << 20)

            async def tell(peer: int, content: Buffer) -> list[bytes]:
                return [large]

            one.transport.calls.register(ECHO, tell)
            assert bytes(await two.transport.calls.call(1, ECHO, b"", DEADLINE_SECONDS)) == large

    run(scenario())


@pytest.mark.parametrize("is_required", [True, False])
def test_oldest_unfinished_tls_handshake_is_evicted_at_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_required: bool
) -> None:
    monkeypatch.setattr("chronik.peers.transport.UNAUTHENTICATED_MAX", 4)

    async def scenario() -> None:
        async with node(1, peer_tls(tmp_path, "one", is_required=is_required)) as one:
            opened = []
            for number in range(4):
                opened.append(await asyncio.open_connection(*one.address))
                opened[-1][1].write(hello()[:100])
                await until(lambda: len(one.transport._unauthenticated) == number + 1)  # noqa: B023
            assert not closed(caplog)
            opened.append(await asyncio.open_connection(*one.address))
            assert await opened[0][0].read() == b""
            assert len(one.transport._unauthenticated) == 4
            assert any("too many unauthenticated connections" in line for line in closed(caplog))
            async with node(2, peer_tls(tmp_path, "two"), {1: one.address}) as two:
                await until(lambda: two.transport.connected_peers == [1])
            for _, writer in opened:
                writer.close()
            await until(lambda: not one.transport._unauthenticated)

    run(scenario())
