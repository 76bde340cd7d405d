"""Registration of this broker with the controller: registered, kept alive by heartbeats, or fenced.

Each start is a new incarnation, which registers itself and retries until it succeeds. A broker whose heartbeats were
not acknowledged for one session timeout fences itself, because other brokers may have become the leaders of its
partitions.
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
from chronik.controller.heartbeats import HEARTBEAT, NO_RESPONSE, BrokerHeartbeat, BrokerHeartbeatResponse
from chronik.controller.liveness import DOWN_SECONDS
from chronik.errors import ConfigError
from chronik.metadata.commands.brokers import RegisterBroker
from chronik.metadata.levels import get_timestamp_if_supported
from chronik.metadata.stores.raft_store import RaftStore
from chronik.metadata.stores.store import StoreClosedError
from chronik.notifier import Notifier
from chronik.peers.calls import CallRejected, CallTimedOut, PeerUnavailable
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.quorum.driver import RaftDriver
from chronik.quorum.outcomes import DriverStopped, OutcomeUnknown, ProposalRejected
from chronik.raft.membership import NO_NODE

logger = logging.getLogger("chronik.node")

HEARTBEATS_PER_SESSION: Final = 10
"""The number of heartbeats that a broker sends per session timeout.

Enough to keep the broker's lease even if a round trip takes 90 % of the timeout or some heartbeats are lost.
"""

HEARTBEAT_SECONDS_MAX: Final = DOWN_SECONDS / 2
"""The maximum interval between a broker's heartbeats in seconds, for long session timeouts.

A broker without an acknowledgement for DOWN_SECONDS must confirm its reads.
"""

HEARTBEAT_SESSIONS_MAX: Final = 2
"""The number of session timeouts after which a broker abandons an unanswered heartbeat.

One is for the response, and one for applying the metadata up to the index in the response.
"""

LEASE_CHECKS_PER_SESSION: Final = 100
"""The maximum number of times per session timeout that a broker checks whether its lease has expired."""

LAST_HEARTBEATS_SECONDS: Final = 0.5
"""The time in seconds that a stopping broker waits for the responses to its last heartbeats."""


class BrokerRegistration:
    """The registration of this broker with the active controller, with its heartbeats and its lease."""

    def __init__(
        self,
        store: RaftStore,
        driver: RaftDriver,
        controller: Controller,
        clock: Clock,
        command: RegisterBroker,
        session_seconds: float,
    ) -> None:
        """Create the registration; `command` is the RegisterBroker command that it proposes."""
        self._store = store
        self._driver = driver
        self._controller = controller
        self._clock = clock
        self._command = command
        self._broker_id = command.broker_id
        self._session_seconds = session_seconds
        self._heartbeat_seconds = min(session_seconds / HEARTBEATS_PER_SESSION, HEARTBEAT_SECONDS_MAX)
        self._heartbeats_in_flight_max = math.ceil(HEARTBEAT_SESSIONS_MAX * session_seconds / self._heartbeat_seconds)
        self._acknowledged_at = float("-inf")
        self.epoch = -1
        self.fencing_callbacks: list[Callable[[], None]] = []
        """Callbacks that are called when the lease expires."""
        self.registered = asyncio.Event()
        self._is_leaving = False
        self._is_known = False
        self._logged_rejection: str | None = None
        """The reason for the last rejected registration that was logged."""
        self._heartbeats: set[asyncio.Task[None]] = set()
        self._heartbeat_due = Notifier()
        """The notifier that wakes the heartbeat loop to send a heartbeat immediately."""
        self._last_response = (NO_NODE, NO_RESPONSE)
        """The controller that last responded, and the time on its clock at which it received the heartbeat."""

    def on_peer_reached(self, peer: int) -> None:
        """Send a heartbeat immediately if the connected peer is the active controller."""
        if peer != NO_NODE and peer == self._driver.leader:
            self._heartbeat_due.notify()

    async def stop_heartbeats(self, seconds: float = LAST_HEARTBEATS_SECONDS) -> None:
        """Stop sending heartbeats, and wait up to `seconds` for responses to those in flight.

        A heartbeat that arrives after the broker was reported offline would bring it back online.
        """
        self._is_leaving = True
        if self._heartbeats and seconds:
            await asyncio.wait(self._heartbeats, timeout=seconds)
        self._cancel_heartbeats()

    @property
    def lease_seconds(self) -> float:
        """Return the seconds until the broker's lease expires; negative if the lease has expired."""
        return self._acknowledged_at + self._session_seconds - self._clock.monotonic()

    @property
    def may_be_replaced(self) -> bool:
        """Return whether the controller may have elected other leaders for this broker's partitions.

        The controller elects other leaders only if it has received no heartbeat for DOWN_SECONDS, and a heartbeat is
        sent before the controller receives it.
        """
        return self._clock.monotonic() - self._acknowledged_at >= DOWN_SECONDS

    async def watch_lease(self) -> None:
        """Call the `fencing_callbacks` when the broker's lease expires, so that pending requests fail immediately.

        Fencing by the controller is detected in the metadata image instead.
        """
        was_expired = True
        while True:
            is_expired = self.lease_seconds < 0
            if is_expired and not was_expired:
                logger.warning(
                    "broker %d: controller lease expired; fencing itself until the next heartbeat succeeds",
                    self._broker_id,
                )
                for callback in self.fencing_callbacks:
                    callback()
            was_expired = is_expired
            await asyncio.sleep(max(self.lease_seconds, self._session_seconds / LEASE_CHECKS_PER_SESSION))

    @property
    def is_fenced(self) -> bool:
        """Return whether this broker is fenced: its lease has expired, or the metadata says so."""
        if self.lease_seconds < 0:
            return True
        broker = self._store.image.brokers.get(self._broker_id)
        return broker is None or broker.is_fenced or broker.epoch != self.epoch

    async def run(self) -> None:
        """Register the broker and send heartbeats until it shuts down.

        Raises:
            ConfigError: The cluster has a feature level that this version does not support.
        """
        while not self._is_leaving:
            try:
                await self._register_broker()
                await self._send_heartbeats()
            except StoreClosedError:
                return

    async def _register_broker(self) -> None:
        while True:
            asked_at = self._clock.monotonic()
            try:
                result = await self._store.propose(self._build_registration_command())
            except KafkaError as error:
                if error.code is ErrorCode.UNSUPPORTED_VERSION:
                    raise ConfigError(error.message) from error
                # Retried silently: a copy of another node's directory and a removed node are rejected until an operator
                # acts. Other errors may be temporary.
                is_rejected = error.code is ErrorCode.INVALID_REGISTRATION
                if not is_rejected or error.message != self._logged_rejection:
                    logger.log(
                        logging.ERROR if is_rejected else logging.INFO, "broker not registered: %s; retrying", error
                    )
                self._logged_rejection = error.message if is_rejected else None
                await asyncio.sleep(self._heartbeat_seconds)
                continue
            self.epoch = result.value
            self._acknowledged_at = asked_at
            self.registered.set()
            position = self._store.format_position(result.index)
            logger.info("registered broker %d: epoch=%d %s", self._broker_id, self.epoch, position)
            return

    def _build_registration_command(self) -> RegisterBroker:
        time_ms = get_timestamp_if_supported(self._store.image.features, self._clock.now_ms())
        return replace(self._command, incarnation=self._store.incarnation, time_ms=time_ms)

    async def _send_heartbeats(self) -> None:
        """Send heartbeats to the controller until the broker shuts down or has to register again.

        Heartbeats do not wait for earlier responses, so that responses arrive at the same rate on a slow network.
        """
        self._is_known = True
        try:
            while self._is_known and not self._is_leaving:
                generation = self._heartbeat_due.generation
                if len(self._heartbeats) < self._heartbeats_in_flight_max:
                    self._heartbeats.add(asyncio.create_task(self._send_heartbeat(), name="heartbeat"))
                await self._heartbeat_due.wait(generation, self._heartbeat_seconds)
                for ended in [heartbeat_task for heartbeat_task in self._heartbeats if heartbeat_task.done()]:
                    self._heartbeats.discard(ended)
                    ended.result()
        finally:
            if not self._is_leaving:
                self._cancel_heartbeats()

    def _cancel_heartbeats(self) -> None:
        for heartbeat in self._heartbeats:
            heartbeat.cancel()
        self._heartbeats.clear()

    async def _send_heartbeat(self) -> None:
        """Send a heartbeat to the controller. A successful heartbeat renews the lease from its sending time."""
        asked_at = self._clock.monotonic()
        leader = self._driver.leader
        answer = await self._send_heartbeat_request(leader)
        if answer is None or not answer.is_leader:
            return
        if not answer.is_known:
            self._is_known = False
            return
        self._last_response = leader, answer.arrived_at
        if await self._wait_until_applied(answer.index):
            self._acknowledged_at = max(self._acknowledged_at, asked_at)

    async def _wait_until_applied(self, index: int) -> bool:
        """Wait until this node has applied the metadata log up to `index`. Return False after a session timeout.

        A broker that was paused thereby detects that it was fenced.
        """
        try:
            await self._driver.wait_applied(index, self._session_seconds)
        except (OutcomeUnknown, ProposalRejected, DriverStopped):
            return False
        return True

    async def _send_heartbeat_request(self, leader: int) -> BrokerHeartbeatResponse | None:
        answered_by, answered_at = self._last_response
        heartbeat = BrokerHeartbeat(self._broker_id, self.epoch, answered_at if answered_by == leader else NO_RESPONSE)
        if leader == NO_NODE:
            return None
        if leader == self._broker_id:
            return await self._controller.heartbeat(leader, heartbeat)
        try:
            return await HEARTBEAT.call(self._driver.transport.calls, leader, heartbeat, self._session_seconds)
        except (PeerUnavailable, CallTimedOut, CallRejected):
            return None
