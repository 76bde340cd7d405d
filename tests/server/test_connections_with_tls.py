"""The tests of `test_connections` with TLS, on asyncio and uvloop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from chronik.config import Address
from chronik.server.connection import ListenerLimits
from chronik.server.listener import ClientListeners
from chronik.server.tls_listener import TlsListenerConfig, TlsListeners
from chronik.tls.contexts import ReloadableTlsContext
from chronik.tls.settings import TlsSettings
from tests.server import test_connections as plain
from tests.tls.certificates import client_context, server_settings

EXCLUDED = {
    "test_client_that_reads_slowly_but_steadily_is_not_closed": "reads from a plain socket",
    "test_client_that_reads_below_minimum_rate_is_closed": "reads from a plain socket",
    "test_connection_above_limit_is_closed": "rejected before the handshake: see test_handshake_limiter",
    "test_shutdown_waits_until_all_responses_are_sent": "uvloop's client loses the last record: see test_tls",
}
globals().update(
    {name: test for name, test in vars(plain).items() if name.startswith("test_") and name not in EXCLUDED}
)


@asynccontextmanager
async def listening_with_tls(
    tls: TlsSettings, echo: plain.Echo, limits: ListenerLimits | None = None
) -> AsyncIterator[tuple[ClientListeners, Address]]:
    limits = limits or ListenerLimits()
    securing = TlsListeners({"SSL": TlsListenerConfig(ReloadableTlsContext("listener SSL", tls))}, limits)
    listener = ClientListeners({"SSL": Address("127.0.0.1", 0)}, echo, limits, tls_listeners=securing)
    address = (await listener.bind())["SSL"]
    await listener.serve()
    try:
        yield listener, address
    finally:
        await listener.stop()


def run_on(loops: Callable[[], asyncio.AbstractEventLoop], scenario: Callable[[], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(asyncio.wait_for(scenario(), 3 * plain.DEADLINE_SECONDS))


async def connect(
    context: ssl.SSLContext, connect: Callable[..., Awaitable[Any]], *address: Any, **options: Any
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await connect(*address, ssl=context, **options)
    return reader, writer


@pytest.fixture(params=["asyncio", "uvloop"], autouse=True)
def _with_tls(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "listening", partial(listening_with_tls, server_settings(tmp_path)))
    monkeypatch.setattr(asyncio, "open_connection", partial(connect, client_context(tmp_path), asyncio.open_connection))
    loops = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
    monkeypatch.setattr(plain, "run", partial(run_on, loops))
