"""The HTTP port with TLS: authentication by client certificate or token, certificate reload, and handshake limits."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from chronik.config import Address, load_config
from chronik.console.connection import HttpLimits
from chronik.console.http_client import (
    HttpAccess,
    NodeRequestError,
    create_pinned_context,
    fetch_status,
    fetch_unready_reason,
    http_get,
)
from chronik.console.https import HttpTls
from chronik.console.listener import HttpListener
from chronik.console.status_pages import PageAuthorizer, StatusPages
from chronik.errors import ConfigError
from tests.console.http_harness import DEADLINE_SECONDS, FakeSource, RawHttpClient, encode_request
from tests.tls.certificates import certificate_authority, client_context, issue_certificate, replace_file

TOKEN = "correct-horse"
TIMEOUT_S = 30.0
OPEN = HttpAccess()


class Secured:
    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.keystore = folder / "node.pem"
        replace_file(self.keystore, issue_certificate("CN=node").keystore_pem)
        replace_file(folder / "trusted.pem", certificate_authority().certificate_pem)
        self.tls = HttpTls(str(self.keystore), str(folder / "trusted.pem") if options.get("trusts") else None)
        limits = options.get("limits")
        self.listener = HttpListener(Address("127.0.0.1", 0), FakeSource(), limits, options.get("token"), self.tls)
        self.address: Address

    async def status_of(self, path: str, way: HttpAccess = OPEN) -> int:
        return (await asyncio.to_thread(http_get, self.address, path, TIMEOUT_S, *way))[0]

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


def test_client_certificate_or_token_authenticates(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(tmp_path, trusts=True, token=TOKEN) as served:
            anonymous, known = served.context(), served.context("CN=prometheus")
            assert await served.status_of("/status", HttpAccess(tls=known)) == 200
            assert await served.status_of("/status", HttpAccess(TOKEN, anonymous)) == 200
            assert await served.status_of("/status", HttpAccess(tls=anonymous)) == 401
            assert await served.status_of("/status", HttpAccess("wrong", anonymous)) == 401
            assert await served.status_of("/healthz", HttpAccess(tls=anonymous)) == 200

    run(scenario)


def test_client_certificate_is_required_on_loopback_without_token(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(tmp_path, trusts=True) as served:
            assert await served.status_of("/metrics", HttpAccess(tls=served.context())) == 401
            assert await served.status_of("/metrics", HttpAccess(tls=served.context("CN=prometheus"))) == 200

    run(scenario)


def test_client_certificate_is_ignored_without_truststore(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(tmp_path, token=TOKEN) as served:
            assert await served.status_of("/status", HttpAccess(tls=served.context("CN=prometheus"))) == 401
            assert await served.status_of("/status", HttpAccess(TOKEN, served.context())) == 200

    run(scenario)


def test_loopback_without_token_or_truststore_is_open_over_tls(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(tmp_path) as served:
            assert await served.status_of("/status", HttpAccess(tls=served.context())) == 200

    run(scenario)


def test_untrusted_certificate_and_plain_http_are_rejected(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(tmp_path, trusts=True) as served:
            with pytest.raises(NodeRequestError):
                await served.status_of("/healthz", HttpAccess(tls=served.context("CN=prometheus", by="another")))
            with pytest.raises(NodeRequestError):
                await served.status_of("/healthz")
            with pytest.raises(NodeRequestError, match="certificate verify failed"):
                await served.status_of("/healthz", HttpAccess(tls=ssl.create_default_context()))

    run(scenario)


def test_replaced_certificate_is_used_for_new_connections(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(tmp_path) as served:
            pinned = HttpAccess(tls=create_pinned_context(served.keystore, with_client_certificate=False))
            assert await served.status_of("/healthz", pinned) == 200
            replace_file(served.keystore, issue_certificate("CN=another node").keystore_pem)
            assert served.tls.context.reload_if_changed()
            with pytest.raises(NodeRequestError, match="certificate verify failed"):
                await served.status_of("/healthz", pinned)
            renewed = HttpAccess(tls=create_pinned_context(served.keystore, with_client_certificate=False))
            assert await served.status_of("/healthz", renewed) == 200

    run(scenario)


def test_pinned_keystore_authenticates_node_and_client(tmp_path: Path) -> None:
    """CLI commands on the node's machine need no CA: they pin the node's certificate, and present it as their own."""

    async def scenario() -> None:
        async with secured(tmp_path, trusts=True) as served:
            own = create_pinned_context(served.keystore, with_client_certificate=True)
            assert (await asyncio.to_thread(fetch_status, served.address, TIMEOUT_S, None, own))["node_id"] == 1
            assert await asyncio.to_thread(fetch_unready_reason, served.address, TIMEOUT_S, None, own) is None
            silent = HttpAccess(tls=create_pinned_context(served.keystore, with_client_certificate=False))
            assert await served.status_of("/status", silent) == 401

    run(scenario)


def test_pipelined_requests_and_large_pages_work_over_tls(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(tmp_path) as served:
            assert isinstance(served.listener.pages, StatusPages)
            source = served.listener.pages._source
            assert isinstance(source, FakeSource)
            source.status_value["topics"] = ["t" * 200] * 20_000
            host, port = served.address
            peer = RawHttpClient(*await asyncio.open_connection(host, port, ssl=served.context()))
            peer.send(encode_request("/healthz") + encode_request("/status") + encode_request("/readyz"))
            assert (await peer.read_response()).status == 200
            assert (await peer.read_response()).json == source.status_value
            assert (await peer.read_response()).status == 200
            peer.send(b"x" * 100_000)
            assert (await peer.read_response()).status == 431
            peer.writer.close()

    run(scenario)


def test_stalled_handshakes_do_not_block_new_connections(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(tmp_path, limits=HttpLimits(connections=8)) as served:
            silent = [await asyncio.open_connection(*served.address) for _ in range(40)]
            assert await served.status_of("/healthz", HttpAccess(tls=served.context())) == 200
            closed = [reader.read(1) for reader, _ in silent[:30]]
            assert [await each for each in closed] == [b""] * 30
            assert served.listener._acceptor is not None
            assert len(served.listener._acceptor._handshakes) <= 2, "a quarter of eight, from one address"
            for _, writer in silent:
                writer.close()

    run(scenario)


def test_invalid_tls_files_raise_config_error(tmp_path: Path) -> None:
    keystore = replace_file(tmp_path / "node.pem", issue_certificate("CN=node").keystore_pem)
    with pytest.raises(ConfigError, match=r"http_keystore.*none\.pem"):
        HttpTls(str(tmp_path / "none.pem"), None)
    with pytest.raises(ConfigError, match=r"http_truststore.*none\.pem"):
        HttpTls(keystore, str(tmp_path / "none.pem"))
    with pytest.raises(ConfigError, match=r"http_truststore = 'ca\.pem': requires http_keystore"):
        load_config(None, {}, http_truststore="ca.pem")
    with pytest.raises(ConfigError, match="http_keystore: "):
        create_pinned_context(tmp_path / "none.pem", with_client_certificate=False)


def test_client_certificate_is_sufficient_off_loopback() -> None:
    PageAuthorizer(None, allows_anonymous=False).check_access("/status", "", has_certificate=True)
