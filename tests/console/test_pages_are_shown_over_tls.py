"""The HTTP port with TLS: a certificate lets in where there is a truststore, the token does as before, and `/healthz`
is for everyone who speaks TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from chronik.config import Address, load_config
from chronik.console.ask import NodeSilent, Way, ask, ask_ready, ask_status
from chronik.console.connection import HttpLimits
from chronik.console.door import Door
from chronik.console.listener import HttpListener
from chronik.console.securing import HttpTls
from chronik.console.trusting import context_of_own
from chronik.errors import ConfigError
from tests.console.serving import DEADLINE_SECONDS, FakeSource, Peer, request
from tests.tls.certificates import authority, client_context, issued, written

TOKEN = "correct-horse"
TIMEOUT_S = 30.0
OPEN = Way()


class Secured:
    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.keystore = folder / "node.pem"
        written(self.keystore, issued("CN=node").both)
        written(folder / "trusted.pem", authority().certificate)
        self.tls = HttpTls(str(self.keystore), str(folder / "trusted.pem") if options.get("trusts") else None)
        limits = options.get("limits")
        self.listener = HttpListener(Address("127.0.0.1", 0), FakeSource(), limits, options.get("token"), self.tls)
        self.address: Address

    async def told(self, path: str, way: Way = OPEN) -> int:
        return (await asyncio.to_thread(ask, self.address, path, TIMEOUT_S, *way))[0]

    def context(self, subject: str | None = None, by: str = "ours") -> ssl.SSLContext:
        return client_context(self.folder, subject, by)


@asynccontextmanager
async def secured(folder: Path, **options: Any) -> AsyncIterator[Secured]:
    served = Secured(folder, **options)
    served.address = await served.listener.bind()
    await served.listener.serve()
    try:
        yield served
    finally:
        await served.listener.stop()
        assert served.listener.connection_count == 0


def run(scenario: Callable[[], Any]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await scenario()

    asyncio.run(in_time())


def test_a_certificate_lets_in_and_so_does_the_token(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(tmp_path, trusts=True, token=TOKEN) as served:
            anybody, known = served.context(), served.context("CN=prometheus")
            assert await served.told("/status", Way(tls=known)) == 200
            assert await served.told("/status", Way(TOKEN, anybody)) == 200
            assert await served.told("/status", Way(tls=anybody)) == 401
            assert await served.told("/status", Way("wrong", anybody)) == 401
            assert await served.told("/healthz", Way(tls=anybody)) == 200

    run(scenario)


def test_without_a_token_a_certificate_is_asked_for_on_loopback_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(tmp_path, trusts=True) as served:
            assert await served.told("/metrics", Way(tls=served.context())) == 401
            assert await served.told("/metrics", Way(tls=served.context("CN=prometheus"))) == 200

    run(scenario)


def test_without_a_truststore_a_certificate_opens_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(tmp_path, token=TOKEN) as served:
            assert await served.told("/status", Way(tls=served.context("CN=prometheus"))) == 401
            assert await served.told("/status", Way(TOKEN, served.context())) == 200

    run(scenario)


def test_on_loopback_without_either_everybody_may_look_over_tls(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(tmp_path) as served:
            assert await served.told("/status", Way(tls=served.context())) == 200

    run(scenario)


def test_strangers_and_who_speaks_no_tls_are_told_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(tmp_path, trusts=True) as served:
            with pytest.raises(NodeSilent):
                await served.told("/healthz", Way(tls=served.context("CN=prometheus", by="another")))
            with pytest.raises(NodeSilent):
                await served.told("/healthz")
            with pytest.raises(NodeSilent, match="certificate verify failed"):
                await served.told("/healthz", Way(tls=ssl.create_default_context()))

    run(scenario)


def test_a_certificate_that_is_replaced_is_shown_to_the_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(tmp_path) as served:
            pinned = Way(tls=context_of_own(served.keystore, shows_itself=False))
            assert await served.told("/healthz", pinned) == 200
            written(served.keystore, issued("CN=another node").both)
            assert served.tls.context.look()
            with pytest.raises(NodeSilent, match="certificate verify failed"):
                await served.told("/healthz", pinned)
            renewed = Way(tls=context_of_own(served.keystore, shows_itself=False))
            assert await served.told("/healthz", renewed) == 200

    run(scenario)


def test_a_node_whose_files_one_has_is_known_by_them(tmp_path: Path) -> None:
    """As commands find nodes on this machine: the CA is not needed, and the node's own certificate opens, if that CA
    signs clients as well."""

    async def scenario() -> None:
        async with secured(tmp_path, trusts=True) as served:
            own = context_of_own(served.keystore, shows_itself=True)
            assert (await asyncio.to_thread(ask_status, served.address, TIMEOUT_S, None, own))["node_id"] == 1
            assert await asyncio.to_thread(ask_ready, served.address, TIMEOUT_S, None, own) is None
            silent = Way(tls=context_of_own(served.keystore, shows_itself=False))
            assert await served.told("/status", silent) == 401

    run(scenario)


def test_requests_follow_each_other_and_large_pages_come_whole(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(tmp_path) as served:
            source = served.listener.pages._source
            assert isinstance(source, FakeSource)
            source.shown["topics"] = ["t" * 200] * 20_000
            host, port = served.address
            peer = Peer(*await asyncio.open_connection(host, port, ssl=served.context()))
            peer.send(request("/healthz") + request("/status") + request("/readyz"))
            assert (await peer.answer()).status == 200
            assert (await peer.answer()).json == source.shown
            assert (await peer.answer()).status == 200
            peer.send(b"x" * 100_000)
            assert (await peer.answer()).status == 431
            peer.writer.close()

    run(scenario)


def test_handshakes_that_do_not_end_leave_room_for_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(tmp_path, limits=HttpLimits(connections=8)) as served:
            silent = [await asyncio.open_connection(*served.address) for _ in range(40)]
            assert await served.told("/healthz", Way(tls=served.context())) == 200
            gone = [reader.read(1) for reader, _ in silent[:30]]
            assert [await each for each in gone] == [b""] * 30
            assert served.listener._acceptor is not None
            assert len(served.listener._acceptor._handshakes) <= 2, "a fourth of eight, from one address"
            for _, writer in silent:
                writer.close()

    run(scenario)


def test_files_that_are_wrong_are_told_in_one_line(tmp_path: Path) -> None:
    keystore = written(tmp_path / "node.pem", issued("CN=node").both)
    with pytest.raises(ConfigError, match=r"http_keystore.*none\.pem"):
        HttpTls(str(tmp_path / "none.pem"), None)
    with pytest.raises(ConfigError, match=r"http_truststore.*none\.pem"):
        HttpTls(keystore, str(tmp_path / "none.pem"))
    with pytest.raises(ConfigError, match=r"http_truststore = 'ca\.pem': expected http_keystore beside it"):
        load_config(None, {}, http_truststore="ca.pem")
    with pytest.raises(ConfigError, match="http_keystore: "):
        context_of_own(tmp_path / "none.pem", shows_itself=False)


def test_off_loopback_a_door_is_opened_by_a_certificate_alone() -> None:
    Door(None, is_open=False).check("/status", "", has_certificate=True)
