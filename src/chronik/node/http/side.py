"""A node's HTTP port, put together. What is behind it beyond health, metrics and status is loaded when it is asked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from chronik.api.routing.router import Router
from chronik.api.shared.context import Services
from chronik.config import Address
from chronik.console.connection import Application, Caller, HttpLimits, Prepared, Viewer
from chronik.console.http import HttpRequest
from chronik.console.listener import HttpListener
from chronik.listeners import WITH_SASL
from chronik.node.descriptors import http_connections
from chronik.node.standing import Job, Standing
from chronik.node.status import NodeStatus

if TYPE_CHECKING:
    from chronik.console.rest.application import RestApplication
    from chronik.console.securing import HttpTls


class HttpSide:
    def __init__(
        self,
        services: Services,
        router: Router,
        standing: Standing,
        source: NodeStatus,
        tls: HttpTls | None,
    ) -> None:
        self._services = services
        self._router = router
        self._standing = standing
        self._source = source
        self._tls = tls
        self._application: _LoadedLater | None = None
        self._listener: HttpListener | None = None

    def jobs(self) -> list[Job]:
        return [] if self._tls is None else [self._tls.keep_up_to_date]

    async def serve(self, address: Address, listening: socket.socket | None = None) -> str:
        """Takes the port, unless it is taken already: `listening`. Returns where it is, as a URL. Raises OSError."""
        config = self._services.config
        self._application = _LoadedLater(self._load)
        self._listener = HttpListener(
            address,
            self._source,
            HttpLimits(connections=http_connections()),
            token=config.http_token,
            tls=self._tls,
            application=self._application,
            asks_who=self._asks_who,
            scheduler=self._services.scheduler,
        )
        bound = await self._listener.bind(listening)
        self._source.start()
        await self._listener.serve()
        return f"{self._listener.scheme}://{bound}"

    async def stop(self) -> None:
        """Does nothing the second time."""
        if self._application is not None:
            self._application.close()
        if self._listener is not None:
            await self._listener.stop()
            self._source.stop()

    @property
    def _asks_who(self) -> bool:
        """Where clients have to say who they are, or may not do everything, people have to log in."""
        has_sasl = any(listener.protocol in WITH_SASL for listener in self._services.config.listeners)
        return has_sasl or self._services.authorizer is not None

    def _load(self) -> Callable[[], RestApplication]:
        """Imports it, which takes a thread some time; what it returns makes one on the loop."""
        from chronik.console.rest.application import RestApplication
        from chronik.console.rest.node_side import NodeSide

        assert self._listener is not None
        door = self._listener.door
        side = NodeSide(
            self._services,
            self._router.dispatch,
            self._source,
            self._standing.others,
            self._asks_who,
        )
        return lambda: RestApplication(side, door)


class _LoadedLater:
    """An application that is imported by the first request to it: most nodes are only probed and scraped."""

    def __init__(self, load: Callable[[], Callable[[], RestApplication]]) -> None:
        self._load = load
        self._loaded: RestApplication | None = None
        self._is_closed = False
        self._loading: Final = asyncio.Lock()

    def close(self) -> None:
        self._is_closed = True
        if self._loaded is not None:
            self._loaded.close()

    async def _application(self) -> RestApplication:
        async with self._loading:
            if self._loaded is None:
                make = await asyncio.to_thread(self._load)
                self._loaded = make()
                if self._is_closed:
                    self._loaded.close()
        return self._loaded

    async def prepare(self, request: HttpRequest, caller: Caller) -> Prepared:
        return await (await self._application()).prepare(request, caller)

    async def check_looking(self, request: HttpRequest, caller: Caller) -> Viewer:
        return await (await self._application()).check_looking(request, caller)


_: type[Application] = _LoadedLater
