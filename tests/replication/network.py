"""A simulated network for peer calls that delays, reorders and loses messages and cuts links in either direction."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from functools import partial

from chronik.peers.calls import CallHandler, CallRejected, CallTimedOut, PeerCalls, PeerUnavailable
from tests.replication.virtual_loop import ProcessRun, VirtualLoop

Link = tuple[int, int]

SILENCE_SECONDS_MAX = 2.0
"""Time without data after which a connection is closed."""


class Network:
    """The links between all nodes."""

    def __init__(self, loop: VirtualLoop, chance: random.Random) -> None:
        self._loop = loop
        self._chance = chance
        self.cut: set[Link] = set()
        self.loss = chance.choice((0.0, 0.01, 0.05))
        self.delay_seconds_max = chance.choice((0.002, 0.02, 0.1))
        self.endpoints: dict[int, VirtualCalls] = {}
        """Calls of the running processes by node id."""
        self.carried = 0

    def heal(self) -> None:
        self.cut.clear()
        self.loss = 0.0
        self.delay_seconds_max = 0.005

    def delay(self) -> float:
        return self._chance.uniform(0.0001, self.delay_seconds_max)

    def loses(self, link: Link) -> bool:
        return link in self.cut or self._chance.random() < self.loss

    async def ask(self, asker: VirtualCalls, peer: int, kind: int, payload: bytes, timeout: float) -> bytes:
        self.carried += 1
        target = self.endpoints.get(peer)
        if target is None or ((asker.node_id, peer) in self.cut and self._chance.random() < 0.5):
            await asyncio.sleep(self.delay())
            raise PeerUnavailable(f"no connection to node {peer}", may_have_arrived=False)
        answer: asyncio.Future[bytes] = self._loop.create_future()
        if self.loses((asker.node_id, peer)):
            self._break_later(answer)
        else:
            arrive = partial(self._arrive, asker, target, kind, payload, answer)
            self._loop.call_later(self.delay(), arrive, context=target.life.context)
        target.awaited[answer] = None
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise CallTimedOut(f"node {peer} did not answer within {timeout:g} s") from None
        finally:
            target.awaited.pop(answer, None)

    def _break_later(self, answer: asyncio.Future[bytes], seconds_max: float = SILENCE_SECONDS_MAX) -> None:
        """Break the connection after a lost message: immediately, or when the silence is detected."""
        seconds = self.delay() if self._chance.random() < 0.5 else self._chance.uniform(0, seconds_max)
        broken = PeerUnavailable("connection lost", may_have_arrived=True)
        self._loop.call_later(seconds, _fail, answer, broken)

    def _arrive(
        self, asker: VirtualCalls, target: VirtualCalls, kind: int, payload: bytes, answer: asyncio.Future[bytes]
    ) -> None:
        self._loop.create_task(self._handle(asker, target, kind, payload, answer))

    async def _handle(
        self, asker: VirtualCalls, target: VirtualCalls, kind: int, payload: bytes, answer: asyncio.Future[bytes]
    ) -> None:
        settle: Callable[[], None]
        try:
            pieces = await target.handlers[kind](asker.node_id, payload)
            settle = partial(_succeed, answer, b"".join(pieces))
        except CallRejected as refusal:
            settle = partial(_fail, answer, CallRejected(str(refusal)))
        if self.loses((target.node_id, asker.node_id)):
            self._break_later(answer)
        else:
            self._loop.call_later(self.delay(), settle, context=asker.life.context)

    def process_died(self, calls: VirtualCalls, *, is_noticed: bool) -> None:
        """Close the connections of a killed process, unless its machine has failed too."""
        self.endpoints.pop(calls.node_id, None)
        for answer in calls.awaited:
            self._break_later(answer, self.delay() if is_noticed else SILENCE_SECONDS_MAX)


class VirtualCalls(PeerCalls):
    """The calls of one run of a node."""

    def __init__(self, node_id: int, network: Network, life: ProcessRun) -> None:
        super().__init__(lambda peer, frame: False)
        self.node_id = node_id
        self.life = life
        self.awaited: dict[asyncio.Future[bytes], None] = {}
        self._network = network
        network.endpoints[node_id] = self

    @property
    def handlers(self) -> Mapping[int, CallHandler]:
        return self._handlers

    async def call(self, peer: int, kind: int, payload: bytes, timeout: float) -> memoryview:
        return memoryview(await self._network.ask(self, peer, kind, payload, timeout))


def _succeed(answer: asyncio.Future[bytes], payload: bytes) -> None:
    if not answer.done():
        answer.set_result(payload)


def _fail(answer: asyncio.Future[bytes], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
