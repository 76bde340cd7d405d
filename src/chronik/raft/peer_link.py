"""Our own connection to one peer: dialled, kept, dialled again, and the queue of what waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Sequence
from typing import Final, Protocol

from chronik.config import Address
from chronik.raft.handshake import DialerHandshake, Identity
from chronik.raft.messages import BadMessage
from chronik.raft.peer_connection import HANDSHAKE_SECONDS_MAX, PeerConnection
from chronik.raft.peer_frames import Frame, FrameKind
from chronik.raft.peer_queue import PeerQueue

logger = logging.getLogger("chronik.raft")

REDIAL_SECONDS_MIN: Final = 0.05
REDIAL_SECONDS_MAX: Final = 1.0
"""A node that comes back dials us too, and is dialled at once then: this only matters while it does not."""

WRITE_BYTES: Final = 256 * 1024
"""Frames handed to the socket with one call."""


class LinkOwner(Protocol):
    def answer_received(self, peer: int, content: bytes) -> None: ...

    def link_lost(self, peer: int) -> None:
        """Also when it could not be had in the first place."""


class PeerLink:
    def __init__(
        self, identity: Identity, peer: int, address: Address, owner: LinkOwner, randomness: random.Random
    ) -> None:
        self.peer: Final = peer
        self.address: Final = address
        self.queue: Final = PeerQueue()
        self._identity = identity
        self._owner = owner
        self._random = randomness
        self._connection: PeerConnection | None = None
        self._is_closed = asyncio.Event()
        self._dial_now = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    def flush(self) -> None:
        connection = self._connection
        while connection is not None and connection.is_open and not connection.is_paused and len(self.queue):
            connection.send(self.queue.take(WRITE_BYTES))

    def dial_now(self) -> None:
        """The peer is there: it has just dialled us."""
        self._dial_now.set()

    async def run(self) -> None:
        """Until cancelled."""
        delay = REDIAL_SECONDS_MIN
        try:
            while True:
                if await self._connect_once():
                    delay = REDIAL_SECONDS_MIN
                await self._pause(delay * (0.5 + self._random.random()))
                delay = min(2 * delay, REDIAL_SECONDS_MAX)
        finally:
            if self._connection is not None:
                self._connection.close("the node stops", logging.DEBUG)

    async def _connect_once(self) -> bool:
        """Returns when the connection is over; whether there was one."""
        loop = asyncio.get_running_loop()
        self._is_closed.clear()
        self._dial_now.clear()
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
                _, connection = await loop.create_connection(
                    lambda: PeerConnection(self, DialerHandshake(self._identity, self.peer)), *self.address
                )
        except (OSError, TimeoutError) as error:
            logger.debug("node %d at %s cannot be reached: %s", self.peer, self.address, error or "too slow")
            self._owner.link_lost(self.peer)
            return False
        self._connection = connection
        try:
            await self._is_closed.wait()
        finally:
            connection.close("the link is given up", logging.DEBUG)
            self._connection = None
        return connection.has_been_open

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._dial_now.wait()

    # ------------------------------------------------------------------------------------------ the connection's side

    def connection_opened(self, connection: PeerConnection) -> None:
        logger.info("connected to node %d at %s", self.peer, self.address)
        self._connection = connection
        self.queue.is_away = False
        self.flush()

    def frames_received(self, connection: PeerConnection, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.kind is not FrameKind.RESPONSE:
                raise BadMessage(f"a {frame.kind.name.lower()} where only answers travel")
            self._owner.answer_received(self.peer, frame.content)

    def writing_resumed(self, connection: PeerConnection) -> None:
        self.flush()

    def connection_closed(self, connection: PeerConnection) -> None:
        self.queue.is_away = True
        self.queue.clear()
        self._is_closed.set()
        self._owner.link_lost(self.peer)
