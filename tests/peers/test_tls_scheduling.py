"""Scheduling of TLS handshakes with unauthenticated clients: their number and their share of the event loop."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from pathlib import Path

import pytest

from chronik.files import Buffer
from chronik.peers.connection import PeerConnection
from chronik.peers.handshake import AcceptorHandshake
from chronik.scheduler import UNAUTHENTICATED_SECONDS_MAX, Scheduler
from tests.peers.helpers import DEADLINE_SECONDS, identity, run, until
from tests.peers.test_calls import ECHO
from tests.peers.test_tls import closed, node, peer_tls
from tests.tls.test_handshake_limits import FakeSocketTransport

PER_ITERATION = 5
MANY = 10 * PER_ITERATION


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
    monkeypatch.setattr("chronik.peers.unauthenticated.UNAUTHENTICATED_MAX", 4)

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
