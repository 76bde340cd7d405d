"""HTTP server of a node. Endpoints other than health, metrics and status are imported on their first request."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from chronik.api.routing.router import Router
from chronik.api.shared.context import Services
from chronik.config import Address
from chronik.console.connection import ClientInfo, HttpApplication, HttpLimits, PreparedRequest, StatusPageViewer
from chronik.console.http import HttpRequest
from chronik.console.listener import HttpListener
from chronik.listeners import SASL_PROTOCOLS
from chronik.node.descriptors import http_connections_max
from chronik.node.node_mode import BackgroundJob, NodeMode
from chronik.node.status import NodeStatusSource

if TYPE_CHECKING:
    from chronik.console.https import HttpTls
    from chronik.console.rest.application import RestApplication


class NodeHttpServer:
    """The HTTP server of a node, which serves the REST API, the web console, health probes and metrics."""

    def __init__(
        self,
        services: Services,
        router: Router,
        node_mode: NodeMode,
        source: NodeStatusSource,
        tls: HttpTls | None,
    ) -> None:
        self._services = services
        self._router = router
        self._node_mode = node_mode
        self._source = source
        self._tls = tls
        self._application: _LazyApplication | None = None
        self._listener: HttpListener | None = None

    def background_jobs(self) -> list[BackgroundJob]:
        """Return the background job that reloads changed certificates, if the server uses TLS."""
        return [] if self._tls is None else [self._tls.reload_certificates]

    async def serve(self, address: Address, listening: socket.socket | None = None) -> str:
        """Start serving on the bound socket `listening` or, without one, on a newly bound port, and return the URL.

        Raises:
            OSError: The port cannot be bound.
        """
        config = self._services.config
        self._application = _LazyApplication(self._load)
        self._listener = HttpListener(
            address,
            self._source,
            HttpLimits(connections=http_connections_max()),
            token=config.http_token,
            tls=self._tls,
            application=self._application,
            requires_login=self._requires_login,
            scheduler=self._services.scheduler,
        )
        bound = await self._listener.bind(listening)
        self._source.start()
        await self._listener.serve()
        return f"{self._listener.scheme}://{bound}"

    async def stop(self) -> None:
        """Stop the HTTP server if it is running."""
        if self._application is not None:
            self._application.close()
        if self._listener is not None:
            await self._listener.stop()
            self._source.stop()

    @property
    def _requires_login(self) -> bool:
        """Return whether users must log in because a listener uses SASL or an authorizer is configured."""
        has_sasl = any(listener.protocol in SASL_PROTOCOLS for listener in self._services.config.listeners)
        return has_sasl or self._services.authorizer is not None

    def _load(self) -> Callable[[], RestApplication]:
        """Import the REST application and return its factory. Runs in a thread, because the import takes long."""
        from chronik.console.rest.application import RestApplication
        from chronik.console.rest.node_interface import NodeInterface

        assert self._listener is not None
        authorizer = self._listener.page_authorizer
        side = NodeInterface(
            self._services,
            self._router.dispatch,
            self._source,
            self._node_mode.other_nodes,
            self._requires_login,
        )
        return lambda: RestApplication(side, authorizer)


class _LazyApplication:
    """A wrapper of the REST application that imports it on the first request, because most nodes serve only probes."""

    def __init__(self, load: Callable[[], Callable[[], RestApplication]]) -> None:
        self._load = load
        self._loaded: RestApplication | None = None
        self._is_closed = False
        self._loading: Final = asyncio.Lock()

    def close(self) -> None:
        self._is_closed = True
        if self._loaded is not None:
            self._loaded.close()

    async def _load_application(self) -> RestApplication:
        async with self._loading:
            if self._loaded is None:
                make = await asyncio.to_thread(self._load)
                self._loaded = make()
                if self._is_closed:
                    self._loaded.close()
        return self._loaded

    async def prepare(self, request: HttpRequest, caller: ClientInfo) -> PreparedRequest:
        return await (await self._load_application()).prepare(request, caller)

    async def authorize_viewer(self, request: HttpRequest, caller: ClientInfo) -> StatusPageViewer:
        return await (await self._load_application()).authorize_viewer(request, caller)


_: type[HttpApplication] = _LazyApplication
