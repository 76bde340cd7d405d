"""Long status pages are aborted when their viewer loses access."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from chronik.config import Address
from chronik.console.connection import ClientInfo, PageViewer, PreparedRequest
from chronik.console.http import HttpRequest
from chronik.console.listener import HttpListener
from chronik.console.status_pages import ROWS_PER_CHUNK
from chronik.principals import Principal
from tests.console.http_harness import DEADLINE_SECONDS, FakeSource, RawHttpClient, encode_request


class FakeApplication:
    """An application in which every client is logged in, until its access is revoked."""

    is_allowed = True

    async def prepare(self, request: HttpRequest, caller: ClientInfo) -> PreparedRequest:
        raise NotImplementedError

    async def authorize_viewer(self, request: HttpRequest, caller: ClientInfo) -> PageViewer:
        return PageViewer(Principal("User", "alice"), lambda: self.is_allowed)


@pytest.mark.parametrize("loses_access", [False, True])
def test_long_page_is_aborted_when_viewer_loses_access(loses_access: bool) -> None:
    application, produced = FakeApplication(), 0

    def rows() -> Iterator[dict[str, object]]:
        nonlocal produced
        for produced in range(20 * ROWS_PER_CHUNK):
            yield {"topic": "t", "partition": produced, "metadata": "x" * 4096}

    async def scenario() -> None:
        source = FakeSource()
        source.groups["g"] = {"group": "g", "offsets": rows()}
        listener = HttpListener(Address("127.0.0.1", 0), source, application=application, requires_login=True)
        address = await listener.bind()
        await listener.serve()
        peer = RawHttpClient(*await asyncio.open_connection(*address))
        peer.send(encode_request("/status/groups/g"))
        async with asyncio.timeout(DEADLINE_SECONDS):
            while produced < ROWS_PER_CHUNK:
                await asyncio.sleep(0)
            if loses_access:
                application.is_allowed = False
                with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError, ValueError)):
                    await peer.read_response()
                assert produced < 20 * ROWS_PER_CHUNK - 1
            else:
                assert len((await peer.read_response()).json["offsets"]) == 20 * ROWS_PER_CHUNK
        peer.writer.close()
        await listener.stop()

    asyncio.run(scenario())
