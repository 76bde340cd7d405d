"""This broker's place in the cluster: registered, heard from, or fenced off.

Each start is a new life, and each life registers itself, as often as it takes. A broker that has had no answer to its
heartbeats for one session fences itself: by then the others may have gone on without it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from chronik.clock import Clock
from chronik.controller.controller import Controller
from chronik.controller.heartbeats import HEARTBEAT, NOT_ANSWERED, BrokerHeartbeat, HeartbeatAnswer
from chronik.controller.liveness import GONE_SECONDS
from chronik.errors import ConfigError
from chronik.metadata.commands.brokers import RegisterBroker
from chronik.metadata.levels import time_if_kept
from chronik.metadata.stores.raft_store import RaftStore
from chronik.metadata.stores.store import StoreClosed
from chronik.news import News
from chronik.peers.calls import CallRefused, CallTimedOut, PeerUnavailable
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.quorum.driver import RaftDriver
from chronik.quorum.outcomes import DriverStopped, OutcomeUnknown, ProposalRefused
from chronik.raft.membership import NOBODY

logger = logging.getLogger("chronik.node")

HEARTBEATS_PER_SESSION: Final = 10
"""So many that there is always a fresh enough answer, even on a line on which one takes nine tenths of a session. A
lost one costs nothing."""

HEARTBEAT_SECONDS_MAX: Final = GONE_SECONDS / 2
"""However long a session is: a broker that was not answered for GONE_SECONDS asks a majority before it answers."""

BEAT_SESSIONS_MAX: Final = 2
"""Each heartbeat ends after two sessions at the latest: one for its answer, one to see that it is applied here."""

LOOKS_PER_SESSION: Final = 100
"""How often at most a lease that is about to end is looked at."""

LAST_BEATS_SECONDS: Final = 0.5
"""The time for answers to the last heartbeats of a broker that leaves: usually a few milliseconds."""


class Registration:
    def __init__(
        self,
        store: RaftStore,
        driver: RaftDriver,
        controller: Controller,
        clock: Clock,
        command: RegisterBroker,
        session_seconds: float,
    ) -> None:
        """`command` is proposed at each registration, for the life that this node then has."""
        self._store = store
        self._driver = driver
        self._controller = controller
        self._clock = clock
        self._command = command
        self._broker_id = command.broker_id
        self._session_seconds = session_seconds
        self._beat_seconds = min(session_seconds / HEARTBEATS_PER_SESSION, HEARTBEAT_SECONDS_MAX)
        self._beats_under_way_max = math.ceil(BEAT_SESSIONS_MAX * session_seconds / self._beat_seconds)
        self._acknowledged_at = float("-inf")
        self.epoch = -1
        self.when_fenced: list[Callable[[], None]] = []
        """Called each time that the lease has ended."""
        self.registered = asyncio.Event()
        self._is_leaving = False
        self._is_known = False
        self._refusal: str | None = None
        """Why it was refused, if that was told already."""
        self._beats: set[asyncio.Task[None]] = set()
        self._is_due = News()
        """Tells when a heartbeat should be sent without waiting for its interval."""
        self._answered = (NOBODY, NOT_ANSWERED)
        """Who answered last, and when the question had arrived there."""

    def controller_reached(self, peer: int) -> None:
        """Send a heartbeat now if the peer is the controller: a broker that was cut off is unfenced sooner."""
        if peer != NOBODY and peer == self._driver.leader:
            self._is_due.tell()

    async def leave(self, seconds: float = LAST_BEATS_SECONDS) -> None:
        """Stop sending heartbeats, and wait up to `seconds` for answers to those in flight: one that arrives after
        the broker's farewell would bring it back online."""
        self._is_leaving = True
        if self._beats and seconds:
            await asyncio.wait(self._beats, timeout=seconds)
        self._end_beats()

    @property
    def lease_seconds(self) -> float:
        """For how long this broker may go on before it has to be heard again; negative when that is over."""
        return self._acknowledged_at + self._session_seconds - self._clock.monotonic()

    @property
    def may_be_replaced(self) -> bool:
        """The controller replaces nobody whom it heard within GONE_SECONDS, whatever its port does; and a heartbeat is
        sent before it is heard."""
        return self._clock.monotonic() - self._acknowledged_at >= GONE_SECONDS

    async def watch_lease(self) -> None:
        """Tells when it ends: those who wait here for what only a broker with a lease can give must wait no longer.
        A broker that is fenced by the image hears of it from there."""
        was_over = True
        while True:
            is_over = self.lease_seconds < 0
            if is_over and not was_over:
                logger.warning("not heard from within a session: broker %d serves nobody", self._broker_id)
                for tell in self.when_fenced:
                    tell()
            was_over = is_over
            await asyncio.sleep(max(self.lease_seconds, self._session_seconds / LOOKS_PER_SESSION))

    @property
    def is_fenced(self) -> bool:
        """Whether others may believe that this broker is gone."""
        if self.lease_seconds < 0:
            return True
        broker = self._store.image.brokers.get(self._broker_id)
        return broker is None or broker.fenced or broker.epoch != self.epoch

    async def run(self) -> None:
        """Raises ConfigError when the cluster is at a level that this version does not support."""
        while not self._is_leaving:
            try:
                await self._register()
                await self._keep_beating()
            except StoreClosed:
                return

    async def _register(self) -> None:
        while True:
            asked_at = self._clock.monotonic()
            try:
                result = await self._store.propose(self._command_now())
            except KafkaError as error:
                if error.code is ErrorCode.UNSUPPORTED_VERSION:
                    raise ConfigError(error.message) from error
                # A copy of another node's folder is never let in, nor a node that was removed, unless somebody does
                # something about it; whatever else it is may pass.
                is_refused = error.code is ErrorCode.INVALID_REGISTRATION
                if not is_refused or error.message != self._refusal:
                    logger.log(logging.ERROR if is_refused else logging.INFO, "not registered yet: %s", error)
                self._refusal = error.message if is_refused else None
                await asyncio.sleep(self._beat_seconds)
                continue
            self.epoch = result.value
            self._acknowledged_at = asked_at
            self.registered.set()
            position = self._store.position(result.index)
            logger.info("registered broker %d: epoch=%d %s", self._broker_id, self.epoch, position)
            return

    def _command_now(self) -> RegisterBroker:
        time_ms = time_if_kept(self._store.image.features, self._clock.now_ms())
        return replace(self._command, incarnation=self._store.incarnation, time_ms=time_ms)

    async def _keep_beating(self) -> None:
        """Returns when the cluster does not know this life any more. Heartbeats do not wait for each other's answers:
        on a line that is slow, but not too slow, one answer after the other comes in time."""
        self._is_known = True
        try:
            while self._is_known and not self._is_leaving:
                heard = self._is_due.count
                if len(self._beats) < self._beats_under_way_max:
                    self._beats.add(asyncio.create_task(self._beat(), name="heartbeat"))
                await self._is_due.since(heard, self._beat_seconds)
                for ended in [beat for beat in self._beats if beat.done()]:
                    self._beats.discard(ended)
                    ended.result()
        finally:
            if not self._is_leaving:
                self._end_beats()

    def _end_beats(self) -> None:
        for beat in self._beats:
            beat.cancel()
        self._beats.clear()

    async def _beat(self) -> None:
        """Asks once. The broker counts as heard from the moment when it asked, not from that of the answer."""
        asked_at = self._clock.monotonic()
        leader = self._driver.leader
        answer = await self._answer_of(leader)
        if answer is None or not answer.is_leader:
            return
        if not answer.is_known:
            self._is_known = False
            return
        self._answered = leader, answer.arrived_at
        if await self._has_applied(answer.index):
            self._acknowledged_at = max(self._acknowledged_at, asked_at)

    async def _has_applied(self, index: int) -> bool:
        """Waits for it: a broker that was paused may have been fenced, and learns of it only from new entries."""
        try:
            await self._driver.wait_applied(index, self._session_seconds)
        except (OutcomeUnknown, ProposalRefused, DriverStopped):
            return False
        return True

    async def _answer_of(self, leader: int) -> HeartbeatAnswer | None:
        answered_by, answered_at = self._answered
        beat = BrokerHeartbeat(self._broker_id, self.epoch, answered_at if answered_by == leader else NOT_ANSWERED)
        if leader == NOBODY:
            return None
        if leader == self._broker_id:
            return await self._controller.heartbeat(leader, beat)
        try:
            return await HEARTBEAT.ask(self._driver.transport.calls, leader, beat, self._session_seconds)
        except (PeerUnavailable, CallTimedOut, CallRefused):
            return None
