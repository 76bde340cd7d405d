"""HTTP port of a node: the configured one, or the default port if it is free.

Most nodes never receive an HTTP request. On the default port, the server is therefore imported when the first client
connects, so the port costs a node neither start-up time nor memory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from chronik.config import Address, NodeConfig
from chronik.errors import exc_info_if_unexpected

if TYPE_CHECKING:
    from chronik.node.http.server import NodeHttpServer

logger = logging.getLogger("chronik.node")

ACCEPT_BACKLOG: Final = 100
"""The maximum number of TCP connections that wait to be accepted by the HTTP port."""

SERVES_CONSOLE: Final = "node %d serves its console on %s"


class LazyHttpPort:
    """The HTTP port of a node. By default, the HTTP server is loaded only when the first connection arrives."""

    def __init__(self, config: NodeConfig, make: Callable[[], NodeHttpServer]) -> None:
        """Create the HTTP port; the function `make` imports and creates the HTTP server."""
        self._config = config
        self._make = make
        self._side: NodeHttpServer | None = None
        self._socket: socket.socket | None = None
        self._loading_task: asyncio.Task[None] | None = None
        self.url: str | None = None

    async def open(self, address: Address) -> Sequence[Callable[[], Awaitable[None]]]:
        """Bind the HTTP port and return the background jobs of the HTTP server.

        Raises:
            OSError: The configured port cannot be bound. If the default port cannot, the node starts without HTTP.
        """
        if self._config.http_is_default and self._config.http_keystore is None:
            self._listen(address)
            return []
        self._side = self._make()
        self.url = await self._side.serve(address)
        logger.info(SERVES_CONSOLE, self._config.node_id, self.url)
        return self._side.background_jobs()

    def _listen(self, address: Address) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._socket = socket.create_server(address, backlog=ACCEPT_BACKLOG)
            self._socket.setblocking(False)
            loop.add_reader(self._socket, self._on_first_connection)
        except (OSError, NotImplementedError) as error:  # the second on Windows
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "not supported here"
            message = "node %d: console not available on %s: %s; use --http HOST:PORT for another port or --http off"
            logger.info(message, self._config.node_id, address, reason)
            self._close_socket()
            return
        self.url = f"http://{Address(address.host, self._socket.getsockname()[1])}"
        logger.info(SERVES_CONSOLE, self._config.node_id, self.url)

    def _on_first_connection(self) -> None:
        assert self._socket is not None
        asyncio.get_running_loop().remove_reader(self._socket)
        self._loading_task = asyncio.ensure_future(self._load_http_server(self._socket))

    async def _load_http_server(self, listening: socket.socket) -> None:
        """Load the HTTP server and let it accept the waiting connections."""
        try:
            self._side = await asyncio.to_thread(self._make)
            await self._side.serve(self._config.http or Address("127.0.0.1", 0), listening)
        except Exception as error:
            logger.error(
                "HTTP server not loaded: %s; HTTP requests get no response",
                error,
                exc_info=exc_info_if_unexpected(error),
            )

    async def stop(self) -> None:
        """Stop the HTTP server if it is running."""
        if self._loading_task is not None:
            await asyncio.wait([self._loading_task])
        elif self._socket is not None and self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._socket)
        if self._side is not None:
            await self._side.stop()
        self._close_socket()

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()
