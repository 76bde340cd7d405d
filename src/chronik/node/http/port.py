"""A node's HTTP port: opened at the start, if it was asked for; otherwise at its usual place, as long as that is free.

Most nodes are never looked at. What answers is loaded by whoever comes first to a port that nobody has asked for, so
that a node with it starts as fast, and is as small, as one without.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from chronik.config import Address, NodeConfig
from chronik.errors import unexpected

if TYPE_CHECKING:
    from chronik.node.http.side import HttpSide

logger = logging.getLogger("chronik.node")

WAITING_MAX: Final = 100
"""Connections that the system holds until they are accepted."""

SHOWS: Final = "node %d shows its console on %s"


class HttpPort:
    def __init__(self, config: NodeConfig, make: Callable[[], HttpSide]) -> None:
        """`make` imports what answers, and makes it."""
        self._config = config
        self._make = make
        self._side: HttpSide | None = None
        self._socket: socket.socket | None = None
        self._opening: asyncio.Task[None] | None = None
        self.url: str | None = None

    async def open(self, address: Address) -> Sequence[Callable[[], Awaitable[None]]]:
        """Returns what has to run as long as it is open. Raises OSError, unless nobody has asked for this port."""
        if self._config.http_is_default and self._config.http_keystore is None:
            self._listen(address)
            return []
        self._side = self._make()
        self.url = await self._side.serve(address)
        logger.info(SHOWS, self._config.node_id, self.url)
        return self._side.jobs()

    def _listen(self, address: Address) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._socket = socket.create_server(address, backlog=WAITING_MAX)
            self._socket.setblocking(False)
            loop.add_reader(self._socket, self._somebody_comes)
        except (OSError, NotImplementedError) as error:  # the second on Windows
            why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "this system cannot wait"
            told = "node %d has no console: %s: %s; --http HOST:PORT puts it elsewhere, --http off leaves it away"
            logger.info(told, self._config.node_id, address, why)
            self._close_socket()
            return
        self.url = f"http://{Address(address.host, self._socket.getsockname()[1])}"
        logger.info(SHOWS, self._config.node_id, self.url)

    def _somebody_comes(self) -> None:
        assert self._socket is not None
        asyncio.get_running_loop().remove_reader(self._socket)
        self._opening = asyncio.ensure_future(self._serve(self._socket))

    async def _serve(self, listening: socket.socket) -> None:
        """Whoever has come waits until it is loaded, and is accepted then."""
        try:
            self._side = await asyncio.to_thread(self._make)
            await self._side.serve(self._config.http or Address("127.0.0.1", 0), listening)
        except Exception as error:
            logger.error("console not loaded: %s; HTTP requests are not answered", error, exc_info=unexpected(error))

    async def stop(self) -> None:
        """Does nothing the second time."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        elif self._socket is not None and self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._socket)
        if self._side is not None:
            await self._side.stop()
        self._close_socket()

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()
