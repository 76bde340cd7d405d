"""This broker's place in the cluster: registered, heard of, or fenced off.

Each start is a new life, and each life registers itself, as often as it takes. A broker that has had no answer to its
heartbeats for one session fences itself: by then the others may have gone on without it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from chronik.clock import Clock
from chronik.config import Address
from chronik.controller.controller import Controller
from chronik.controller.heartbeats import HEARTBEAT, BrokerHeartbeat, HeartbeatAnswer
from chronik.metadata.commands import RegisterBroker
from chronik.metadata.raft_store import RaftStore
from chronik.metadata.store import StoreClosed
from chronik.protocol.errors import KafkaError
from chronik.raft.driver import RaftDriver
from chronik.raft.membership import NOBODY
from chronik.raft.outcomes import DriverStopped, OutcomeUnknown, ProposalRefused
from chronik.raft.peer_calls import CallRefused, CallTimedOut, PeerUnavailable

logger = logging.getLogger("chronik.node")

HEARTBEATS_PER_SESSION: Final = 4


class Registration:
    def __init__(
        self,
        store: RaftStore,
        driver: RaftDriver,
        controller: Controller,
        clock: Clock,
        broker_id: int,
        address: Address,
        rack: str | None,
        directory_id: bytes,
        session_seconds: float,
        *,
        is_durable: bool,
    ) -> None:
        self._store = store
        self._driver = driver
        self._controller = controller
        self._clock = clock
        self._broker_id = broker_id
        self._address = address
        self._rack = rack
        self._directory_id = directory_id
        self._is_durable = is_durable
        self._session_seconds = session_seconds
        self._acknowledged_at = float("-inf")
        self.epoch = -1
        self.registered = asyncio.Event()
        self._is_leaving = False

    def leave(self) -> None:
        """No heartbeat from now on: the broker is about to say goodbye, and must not be brought back."""
        self._is_leaving = True

    @property
    def is_fenced(self) -> bool:
        """Whether others may believe that this broker is gone."""
        if self._clock.monotonic() - self._acknowledged_at > self._session_seconds:
            return True
        broker = self._store.image.brokers.get(self._broker_id)
        return broker is None or broker.fenced or broker.epoch != self.epoch

    async def run(self) -> None:
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
                result = await self._store.propose(
                    RegisterBroker(
                        broker_id=self._broker_id,
                        host=self._address.host,
                        port=self._address.port,
                        rack=self._rack,
                        incarnation=self._store.incarnation,
                        directory_id=self._directory_id,
                        is_durable=self._is_durable,
                    )
                )
            except KafkaError as error:
                logger.info("not registered yet: %s", error)
                await asyncio.sleep(self._session_seconds / HEARTBEATS_PER_SESSION)
                continue
            self.epoch = result.value
            self._acknowledged_at = asked_at
            self.registered.set()
            term = self._driver.status.term
            logger.info(
                "registered broker %d with epoch %d (term %d, index %d)",
                self._broker_id,
                self.epoch,
                term,
                result.index,
            )
            return

    async def _keep_beating(self) -> None:
        """Returns when the cluster does not know this life any more."""
        while not self._is_leaving:
            asked_at = self._clock.monotonic()
            answer = await self._beat()
            if answer is not None and answer.is_leader:
                if not answer.is_known:
                    return
                if await self._has_applied(answer.index):
                    self._acknowledged_at = asked_at
            await asyncio.sleep(self._session_seconds / HEARTBEATS_PER_SESSION)

    async def _has_applied(self, index: int) -> bool:
        """A broker that was paused may have been fenced meanwhile, and learn of it only with the entries that come."""
        try:
            await self._driver.wait_applied(index, self._session_seconds / 2)
        except (OutcomeUnknown, ProposalRefused, DriverStopped):
            return False
        return True

    async def _beat(self) -> HeartbeatAnswer | None:
        leader = self._driver.leader
        beat = BrokerHeartbeat(self._broker_id, self.epoch)
        if leader == NOBODY:
            return None
        if leader == self._broker_id:
            return await self._controller.heartbeat(leader, beat)
        try:
            return await HEARTBEAT.ask(self._driver.transport.calls, leader, beat, self._session_seconds / 2)
        except (PeerUnavailable, CallTimedOut, CallRefused):
            return None
