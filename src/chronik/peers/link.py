"""Our own connection to one peer: dialled, kept, dialled again, and the queue of what waits for it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from chronik.config import Address
from chronik.errors import BadMessage
from chronik.files import Buffer
from chronik.news import News
from chronik.peers.calls import PING
from chronik.peers.connection import HANDSHAKE_SECONDS_MAX, PeerConnection
from chronik.peers.frames import Frame, FrameKind
from chronik.peers.handshake import DialerHandshake, Identity
from chronik.peers.queue import PeerQueue
from chronik.peers.securing import PeerTls

logger = logging.getLogger("chronik.raft")

REDIAL_SECONDS_MIN: Final = 0.05
REDIAL_SECONDS_MAX: Final = 0.5
"""How long to wait between dials. A node that comes back dials us too, and is dialled at once then; but that a network
has healed is found out only by dialling."""

DIAL_AGAIN_SECONDS: Final = 0.5
DIALS_MAX: Final = 10
"""When the first packet of a dial is lost, the kernel repeats it after one second, three, seven. So another dial is
begun beside it, while the first still has a chance: on a slow line an answer takes seconds."""

EAGER_SECONDS: Final = 5.0
EAGER_REDIAL_SECONDS_MAX: Final = 0.15
"""At first a lost peer is dialled more often: a port that refuses tells a dead process from a slow one, and others wait
to take over from it."""

FASTER: Final = "the node was reached by another dial"

WRITE_BYTES: Final = 256 * 1024
"""How much is handed to the socket with one call."""


class LinkOwner(Protocol):
    def answer_received(self, peer: int, content: Buffer) -> None: ...

    def link_opened(self, peer: int) -> None: ...

    def link_lost(self, peer: int) -> None:
        """Is also called when there never was a connection."""

    def link_refused(self, peer: int) -> None:
        """Nobody listens at its port. Is called for each dial that ends so."""


class PeerLink:
    def __init__(
        self,
        identity: Identity,
        peer: int,
        address: Address,
        owner: LinkOwner,
        randomness: random.Random,
        tls: PeerTls | None = None,
    ) -> None:
        self.peer: Final = peer
        self.address: Final = address
        self.queue: Final = PeerQueue()
        self._identity = identity
        self._owner = owner
        self._random = randomness
        self._connection: PeerConnection | None = None
        self._is_closed = asyncio.Event()
        self._dialled_us = News()
        self._refused_since: float | None = None
        self._tls = tls
        self._tls_failed = False
        """Whether the last dial came no further than TLS."""

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    @property
    def refused_seconds(self) -> float:
        """For how long every dial was refused; 0 when the last one was not."""
        since = self._refused_since
        return 0.0 if since is None else asyncio.get_running_loop().time() - since

    def flush(self) -> None:
        connection = self._connection
        while connection is not None and connection.is_open and not connection.is_paused and len(self.queue):
            connection.send(self.queue.take(WRITE_BYTES))

    def dial_now(self) -> None:
        """Dials without waiting: the peer is alive, for it has just dialled us."""
        self._dialled_us.tell()

    async def run(self) -> None:
        """Dials, and dials again, until cancelled."""
        loop = asyncio.get_running_loop()
        delay, lost_at = REDIAL_SECONDS_MIN, loop.time()
        try:
            while True:
                heard = self._dialled_us.count
                if await self._connect_once():
                    delay, lost_at = REDIAL_SECONDS_MIN, loop.time()
                await self._dialled_us.since(heard, delay * (0.5 + self._random.random()))
                is_eager = loop.time() - lost_at < EAGER_SECONDS
                delay = min(2 * delay, EAGER_REDIAL_SECONDS_MAX if is_eager else REDIAL_SECONDS_MAX)
        finally:
            if self._connection is not None:
                self._connection.close("the node stops", logging.DEBUG)

    async def _connect_once(self) -> bool:
        """Returns, when the connection is over, whether there was one."""
        self._is_closed.clear()
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
                connection = await self._dial()
        except (OSError, TimeoutError) as error:
            logger.debug("node %d at %s cannot be reached: %s", self.peer, self.address, error or "too slow")
            self._owner.link_lost(self.peer)
            self._note_refusal(error)
            return False
        self._refused_since = None
        self._connection = connection
        try:
            if not connection.is_closing:
                await self._is_closed.wait()
        finally:
            connection.close("the link is given up", logging.DEBUG)
            self._connection = None
        return connection.has_been_open

    async def _dial(self) -> PeerConnection:
        """Return the first connection that succeeds. Raise OSError as soon as a dial fails.

        Another dial is started every DIAL_AGAIN_SECONDS, and immediately when the peer has dialled us: then the network
        has healed, and the kernel would repeat the first packet of the earlier dials only seconds later."""
        dials: set[asyncio.Task[PeerConnection]] = set()
        heard = self._dialled_us.count
        woken: asyncio.Task[bool] | None = None
        try:
            while True:
                if len(dials) < DIALS_MAX:
                    dials.add(asyncio.create_task(self._dial_once(), name=f"dial of node {self.peer}"))
                woken = asyncio.create_task(self._dialled_us.since(heard, DIAL_AGAIN_SECONDS))
                done, _ = await asyncio.wait({*dials, woken}, return_when=asyncio.FIRST_COMPLETED)
                for dial in dials & done:
                    dials.remove(dial)
                    return dial.result()
                heard = self._dialled_us.count
        finally:
            if woken is not None:
                woken.cancel()
            for dial in dials:
                dial.add_done_callback(_hang_up)
                dial.cancel()

    async def _dial_once(self) -> PeerConnection:
        connection = PeerConnection(self, DialerHandshake(self._identity, self.peer), PING)
        try:
            await asyncio.get_running_loop().create_connection(self._dialling(connection), *self.address)
        except asyncio.CancelledError:  # it may have come through in this very moment
            connection.close(FASTER, logging.DEBUG)
            raise
        return connection

    def _dialling(self, connection: PeerConnection) -> Callable[[], asyncio.BaseProtocol]:
        """While TLS is not required, a peer that does not know it is dialled without, every other time."""
        tls = self._tls
        if tls is None or (self._tls_failed and not tls.is_required):
            self._tls_failed = False
            return lambda: connection
        return lambda: tls.dial(connection, self._note_failure)

    def _note_failure(self) -> None:
        self._tls_failed = True

    def _note_refusal(self, error: Exception) -> None:
        """A dial of a host name with several addresses ends in another error, and counts as merely silent."""
        if not isinstance(error, ConnectionRefusedError):
            self._refused_since = None
            return
        if self._refused_since is None:
            self._refused_since = asyncio.get_running_loop().time()
        self._owner.link_refused(self.peer)

    # ------------------------------------------------------------------------------------------ the connection's side

    def connection_opened(self, connection: PeerConnection) -> None:
        logger.info("connected to node %d at %s", self.peer, self.address)
        self._connection = connection
        self.queue.is_away = False
        self.flush()
        self._owner.link_opened(self.peer)

    def frames_received(self, connection: PeerConnection, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.kind is not FrameKind.RESPONSE:
                raise BadMessage(f"a {frame.kind.name.lower()} where only answers travel")
            self._owner.answer_received(self.peer, frame.content)

    def writing_resumed(self, connection: PeerConnection) -> None:
        self.flush()

    def connection_closed(self, connection: PeerConnection) -> None:
        if connection is not self._connection:
            return  # another dial was faster
        self.queue.is_away = True
        self.queue.clear()
        self._is_closed.set()
        self._owner.link_lost(self.peer)


def _hang_up(dial: asyncio.Task[PeerConnection]) -> None:
    """Ends a dial because another one was faster, or failed first."""
    if not dial.cancelled() and dial.exception() is None:
        dial.result().close(FASTER, logging.DEBUG)
