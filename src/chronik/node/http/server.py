"""HTTP server of a node. Endpoints other than health, metrics and status are imported on their first request."""

from __future__ import annotations

import asyncio
import socket
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from chronik.api.routing.router import Router
from chronik.api.shared.context import Services
from chronik.config import Address, NodeConfig
from chronik.console.connection import ClientInfo, HttpApplication, HttpLimits, PreparedRequest, StatusPageViewer
from chronik.console.http import HttpError, HttpRequest
from chronik.console.listener import HttpListener
from chronik.console.status_pages import PageAuthorizer
from chronik.listeners import SASL_PROTOCOLS
from chronik.node.descriptors import http_connections_max
from chronik.node.http.registry_url import REGISTRY_PATH
from chronik.node.node_mode import BackgroundJob, NodeMode
from chronik.node.status import NodeStatusSource

if TYPE_CHECKING:
    from chronik.console.https import HttpTls
    from chronik.console.registry.application import RegistryApplication
    from chronik.console.rest.application import RestApplication
    from chronik.console.rest.authentication import HttpAuthenticator
    from chronik.console.rest.node_interface import NodeInterface
    from chronik.console.rest.single_sign_on import SingleSignOn
    from chronik.registry.service import SchemaRegistry
    from chronik.security.oidc.settings import OidcSettings


class NodeHttpServer:
    """The HTTP server of a node, which serves the REST API, the web console, the schema registry and status pages."""

    def __init__(
        self,
        services: Services,
        router: Router,
        node_mode: NodeMode,
        source: NodeStatusSource,
        tls: HttpTls | None,
    ) -> None:
        self._services = services
        self._source = source
        self._tls = tls
        config = services.config
        has_sasl = any(listener.protocol in SASL_PROTOCOLS for listener in config.listeners)
        oidc = _read_oidc_settings(config)
        self._requires_login = has_sasl or services.authorizer is not None or oidc is not None
        """Whether users must log in because a listener uses SASL, or an authorizer or single sign-on is configured."""
        self._applications = _LazyApplications(services, router, node_mode, source, oidc, self._requires_login)
        self._listeners: list[HttpListener] = []
        self._has_started_source = False

    def background_jobs(self) -> list[BackgroundJob]:
        """Return the background job that reloads changed certificates, if the server uses TLS."""
        return [] if self._tls is None else [self._tls.reload_certificates]

    async def serve(self, address: Address, listening: socket.socket | None = None) -> str:
        """Start serving on the bound socket `listening` or, without one, on a newly bound port, and return the URL.

        Raises:
            OSError: The port cannot be bound.
        """
        listener = self._create_listener(address, self._source, _ConsoleApplication(self._applications))
        self._applications.page_authorizer = listener.page_authorizer
        bound = await listener.bind(listening)
        self._source.start()
        self._has_started_source = True
        return await self._start(listener, bound)

    async def serve_registry(self, address: Address) -> str:
        """Start serving the schema registry at the root of a port of its own, and return the URL.

        Raises:
            OSError: The port cannot be bound.
        """
        application = _RegistryListenerApplication(self._applications)
        listener = self._create_listener(address, None, application)
        application.page_authorizer = listener.page_authorizer
        return await self._start(listener, await listener.bind())

    def _create_listener(
        self, address: Address, source: NodeStatusSource | None, application: HttpApplication
    ) -> HttpListener:
        return HttpListener(
            address,
            source,
            HttpLimits(connections=http_connections_max()),
            token=self._services.config.http_token,
            tls=self._tls,
            application=application,
            requires_login=self._requires_login,
            scheduler=self._services.scheduler,
        )

    async def _start(self, listener: HttpListener, bound: Address) -> str:
        """Let a bound listener accept connections, and return its URL."""
        self._listeners.append(listener)
        await listener.serve()
        return f"{listener.scheme}://{bound}"

    async def stop(self) -> None:
        """Stop the HTTP server if it is running."""
        await self._applications.close()
        while self._listeners:
            await self._listeners.pop().stop()
        if self._has_started_source:
            self._has_started_source = False
            self._source.stop()


class _LazyApplications:
    """The applications of a node's HTTP ports, which are imported on first use, because most nodes serve only probes.

    They share an authenticator, so that a session of the console is valid for the schema registry.
    """

    def __init__(
        self,
        services: Services,
        router: Router,
        node_mode: NodeMode,
        source: NodeStatusSource,
        oidc: OidcSettings | None,
        requires_login: bool,
    ) -> None:
        self._services = services
        self._router = router
        self._node_mode = node_mode
        self._source = source
        self._oidc = oidc
        self._requires_login = requires_login
        self.page_authorizer = PageAuthorizer(None, allows_anonymous=False)
        """The rules of the HTTP port for clients without a login."""
        self._shared: tuple[NodeInterface, HttpAuthenticator] | None = None
        self._console: RestApplication | None = None
        self._registry: RegistryApplication | None = None
        self._is_closed = False
        self._loading: Final = asyncio.Lock()

    async def load_console(self) -> RestApplication:
        """Return the admin API and the console."""
        async with self._loading:
            if self._console is None:
                node, authenticator = await self._load_shared()
                make, make_single_sign_on = await asyncio.to_thread(_import_console, self._oidc)
                sign_on = None
                if make_single_sign_on is not None and self._oidc is not None:
                    sign_on = make_single_sign_on(self._oidc, node, authenticator)
                self._console = make(node, authenticator, sign_on)
                if self._is_closed:
                    self._console.close()
        return self._console

    async def load_registry(self) -> RegistryApplication:
        """Return the schema registry."""
        async with self._loading:
            if self._registry is None:
                node, authenticator = await self._load_shared()
                make = await asyncio.to_thread(_import_registry)
                self._registry = make(node, authenticator)
        return self._registry

    async def _load_shared(self) -> tuple[NodeInterface, HttpAuthenticator]:
        """Return what both applications use. The caller holds the lock."""
        if self._shared is None:
            make_registry, make_node, make_authenticator = await asyncio.to_thread(_import_shared)
            services = self._services
            node = make_node(
                services,
                self._router.dispatch,
                self._source,
                self._node_mode.other_nodes,
                make_registry(services.store, now_ms=services.clock.now_ms),
                self._router.limiter,
                self._requires_login,
            )
            self._shared = node, make_authenticator(node, self.page_authorizer)
            if self._is_closed:
                await self._close_shared(*self._shared)
        return self._shared

    async def close(self) -> None:
        """Stop the threads of the applications, also of those that are being imported; do nothing if already closed."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._console is not None:
            self._console.close()
        if self._shared is not None:
            await self._close_shared(*self._shared)

    async def _close_shared(self, node: NodeInterface, authenticator: HttpAuthenticator) -> None:
        authenticator.close()
        await node.registry.close()


def _read_oidc_settings(config: NodeConfig) -> OidcSettings | None:
    """Return the settings of single sign-on; None if it is not configured. Raise ConfigError if they are invalid."""
    if config.oidc_issuer is None and config.oidc_client_id is None and config.oidc_redirect_url is None:
        return None
    from chronik.security.oidc.settings import read_oidc_settings

    return read_oidc_settings(config)


def _import_shared() -> tuple[type[SchemaRegistry], type[NodeInterface], type[HttpAuthenticator]]:
    from chronik.console.rest.authentication import HttpAuthenticator
    from chronik.console.rest.node_interface import NodeInterface
    from chronik.registry.service import SchemaRegistry

    return SchemaRegistry, NodeInterface, HttpAuthenticator


def _import_console(oidc: OidcSettings | None) -> tuple[type[RestApplication], type[SingleSignOn] | None]:
    """Return the class of the console and, if single sign-on is configured, the class of its pages."""
    from chronik.console.rest.application import RestApplication

    if oidc is None:
        return RestApplication, None
    from chronik.console.rest.single_sign_on import SingleSignOn

    return RestApplication, SingleSignOn


def _import_registry() -> type[RegistryApplication]:
    from chronik.console.registry.application import RegistryApplication

    return RegistryApplication


class _ConsoleApplication:
    """The application of the HTTP port: the admin API, the console, and the schema registry below REGISTRY_PATH."""

    def __init__(self, applications: _LazyApplications) -> None:
        self._applications = applications

    async def prepare(self, request: HttpRequest, caller: ClientInfo) -> PreparedRequest:
        if request.target == REGISTRY_PATH or request.target.startswith(f"{REGISTRY_PATH}/"):
            return await (await self._applications.load_registry()).prepare(request, caller, REGISTRY_PATH)
        return await (await self._applications.load_console()).prepare(request, caller)

    async def authorize_viewer(self, request: HttpRequest, caller: ClientInfo) -> StatusPageViewer:
        return await (await self._applications.load_console()).authorize_viewer(request, caller)


class _RegistryListenerApplication:
    """The application of the schema registry's own port."""

    def __init__(self, applications: _LazyApplications) -> None:
        self._applications = applications
        self.page_authorizer: PageAuthorizer | None = None
        """The rules of the port for clients without a login."""

    async def prepare(self, request: HttpRequest, caller: ClientInfo) -> PreparedRequest:
        registry = await self._applications.load_registry()
        return await registry.prepare(request, caller, "", self.page_authorizer)

    async def authorize_viewer(self, request: HttpRequest, caller: ClientInfo) -> StatusPageViewer:
        raise HttpError(HTTPStatus.NOT_FOUND, "this port serves only the schema registry")


_: tuple[type[HttpApplication], ...] = (_ConsoleApplication, _RegistryListenerApplication)
