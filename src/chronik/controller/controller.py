"""The cluster controller, which exists on every node and is active on the Raft leader.

It creates the cluster id, the node records and the system topics, and decides by heartbeats which brokers are alive.
All its decisions are metadata commands that are safe to repeat by a second controller, which may exist for a moment.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from chronik.clock import Clock
from chronik.config import Address
from chronik.configs.resolver import ConfigResolver
from chronik.controller.heartbeats import HEARTBEAT, BrokerHeartbeat, BrokerHeartbeatResponse, HeartbeatConfirmation
from chronik.controller.liveness import DOWN_SECONDS, BrokerLiveness
from chronik.controller.membership import NodeAdmission, find_members_without_node_record, has_node_records
from chronik.controller.partition_maintenance import PartitionMaintenance
from chronik.controller.system_topics import create_system_topics, repair_system_topics
from chronik.ids import format_id, generate_id
from chronik.metadata import levels
from chronik.metadata.commands.cluster import AddNode, CreateCluster, SetFeatureLevel
from chronik.metadata.commands.topics import CreateTopics
from chronik.metadata.names import SYSTEM_TOPICS
from chronik.metadata.stores.raft_store import RaftStore
from chronik.metadata.stores.store import StoreClosedError
from chronik.notifier import Notifier
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.quorum.driver import RaftDriver
from chronik.quorum.outcomes import DriverStopped, NotLeader, OutcomeUnknown, ProposalRejected, ReadTimedOut
from chronik.raft.events import RaftStatus
from chronik.raft.membership import NO_NODE
from chronik.raft.roles import Role

logger = logging.getLogger("chronik.controller")

CHECKS_PER_SESSION: Final = 6
"""Number of liveness checks per session timeout, which bounds the delay in detecting a dead broker."""

SYSTEM_TOPIC_CREATED: Final = "system topic %s created: partitions=%d %s"

SYSTEM_TOPICS_WAIT_SECONDS: Final = 5.0
"""Seconds for which the first leader waits for all brokers to come online before it creates the system topics."""


class Controller:
    """The active or standby controller of a node."""

    def __init__(
        self,
        store: RaftStore,
        driver: RaftDriver,
        clock: Clock,
        raft_addresses: Mapping[int, Address],
        session_seconds: float,
        replication_factor: int,
        configs: ConfigResolver,
    ) -> None:
        self._store = store
        self._driver = driver
        self._clock = clock
        self._raft_addresses = raft_addresses
        self._session_seconds = session_seconds
        self._replication_factor = replication_factor
        self._liveness = BrokerLiveness(session_seconds)
        self._is_leader = False
        self._leader_since = 0.0
        self._last_check = 0.0
        self._predecessor = NO_NODE
        self._changes = Notifier()
        self._partition_maintenance = PartitionMaintenance(store, configs, clock)
        self._heartbeat_confirmation = HeartbeatConfirmation(lambda: driver.read_index(session_seconds))
        self.admissions: Final = NodeAdmission(store, driver)
        HEARTBEAT.serve(driver.transport.calls, self.heartbeat)

    def on_status_changed(self, status: RaftStatus) -> None:
        leads = status.role is Role.LEADER
        if leads and not self._is_leader:
            self._leader_since = self._last_check = self._clock.monotonic()
            self._liveness.reset(self._leader_since, self._predecessor)
            self._partition_maintenance.start()
        self._is_leader = leads
        if status.leader != NO_NODE:
            self._predecessor = status.leader
        self._changes.notify()

    async def heartbeat(self, peer: int, heartbeat_request: BrokerHeartbeat) -> BrokerHeartbeatResponse:
        """Respond to a broker's heartbeat, after a majority has confirmed that this node is still the leader."""
        arrived_at = self._clock.monotonic()
        if not self._is_leader:
            return BrokerHeartbeatResponse(is_leader=False)
        try:
            await self._heartbeat_confirmation.wait_confirmed(len(self._store.image.brokers))
        except (NotLeader, ReadTimedOut, ProposalRejected, OutcomeUnknown, DriverStopped):
            return BrokerHeartbeatResponse(is_leader=False)
        broker = self._store.image.brokers.get(heartbeat_request.broker_id)
        is_known = broker is not None and broker.epoch == heartbeat_request.broker_epoch
        if is_known:
            self._liveness.record_heartbeat(
                heartbeat_request.broker_id, heartbeat_request.broker_epoch, arrived_at, heartbeat_request.answered_at
            )
            if broker is not None and broker.is_fenced:
                self._changes.notify()
        return BrokerHeartbeatResponse(True, is_known, self._store.image.applied_index, arrived_at)

    async def run(self) -> None:
        while True:
            seen_changes = self._changes.generation
            if self._is_leader:
                try:
                    await self._confirm_leadership()
                    await self._ensure_cluster_exists()
                    await self._update_broker_statuses()
                    await self.admissions.reconcile()
                    await self._repair_system_topics()
                    await self._partition_maintenance.check()
                except KafkaError as error:
                    logger.info("controller: check of brokers, members and partitions failed: %s; retrying", error)
                except StoreClosedError:
                    return
            await self._changes.wait(seen_changes, self._seconds_until_next_check())

    async def _confirm_leadership(self) -> None:
        """Confirm the Raft leadership with a majority, and wait until all commands of earlier leaders are applied.

        Otherwise, a status change by an earlier leader would look like a shutdown of the broker, and a node that was
        paused would consider itself the leader and all brokers dead.
        """
        self._reset_liveness_after_pause()
        try:
            index = await self._driver.read_index(self._session_seconds)
            await self._driver.wait_applied(index, self._session_seconds)
        except (NotLeader, ReadTimedOut, ProposalRejected, OutcomeUnknown) as error:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"Leadership could not be confirmed: {error}") from error
        except DriverStopped as error:
            raise StoreClosedError(str(error)) from error
        self._reset_liveness_after_pause()

    def _reset_liveness_after_pause(self) -> None:
        now = self._clock.monotonic()
        if now - self._last_check > self._session_seconds:
            self._liveness.reset(now)
        self._last_check = now

    def _seconds_until_next_check(self) -> float:
        """Return the seconds until the next liveness check, which is sooner if a broker's port refuses connections."""
        until_certain = [
            DOWN_SECONDS - gone for gone in self._get_broker_down_seconds().values() if 0 < gone < DOWN_SECONDS
        ]
        return min([self._session_seconds / CHECKS_PER_SESSION, DOWN_SECONDS, *until_certain])

    def _get_broker_down_seconds(self) -> dict[int, float]:
        gone_seconds = self._driver.transport.down_seconds
        return {broker_id: gone_seconds(broker_id) for broker_id in self._store.image.brokers}

    async def _update_broker_statuses(self) -> None:
        brokers = self._store.image.brokers
        for change in self._liveness.status_changes(brokers, self._clock.monotonic(), self._get_broker_down_seconds()):
            result = await self._store.propose(change, local_only=True)
            broker = self._store.image.brokers.get(change.broker_id)
            status = broker.status if broker is not None else change.status
            logger.info(
                "broker %d: status changed: status=%s %s",
                change.broker_id,
                status.value,
                self._store.format_position(result.index),
            )

    async def _ensure_cluster_exists(self) -> None:
        image = self._store.image
        if not image.cluster_id:
            level = levels.choose_bootstrap_level(image.brokers)
            if level > levels.get_cluster_level(image.features):
                await self._store.propose(SetFeatureLevel(levels.FEATURE_NAME, level), local_only=True)
            await self._add_missing_nodes()
            created = CreateCluster(format_id(generate_id()), self._clock.now_ms())
            result = await self._store.propose(created, local_only=True)
            logger.info("cluster created: id=%s %s", created.cluster_id, self._store.format_position(result.index))
        else:
            await self._add_missing_nodes()
        missing = [name for name in SYSTEM_TOPICS if name not in image.topics]
        candidates = self._list_replica_candidates() if missing else ()
        if missing and self._can_place_replicas(candidates):
            commands = create_system_topics(
                image, missing, candidates, self._replication_factor, self._clock.now_ms(), generate_id
            )
            result = await self._store.propose(CreateTopics(commands), local_only=True)
            failed = {failure.item: failure.message for failure in result.failures}
            position = self._store.format_position(result.index)
            for item, command in enumerate(commands):
                if item in failed:
                    logger.warning(
                        "system topic %s: creation failed: %s (%s); retrying at the next check",
                        command.name,
                        failed[item],
                        position,
                    )
                else:
                    logger.info(SYSTEM_TOPIC_CREATED, command.name, len(command.partitions), position)

    async def _add_missing_nodes(self) -> None:
        """Add a node record to the metadata for each Raft member that has none.

        The cluster id is created after all members have a record. From then on, at feature level 3, a member without a
        record is removed.
        """
        for member in find_members_without_node_record(self._store.image, self._driver.status.membership):
            address = self._raft_addresses.get(member.node_id)
            if address is not None:
                command = AddNode(member.node_id, address.host, address.port, member.is_voter)
                await self._store.propose(command, local_only=True)

    async def _repair_system_topics(self) -> None:
        image = self._store.image
        for command in repair_system_topics(image, self._driver.node_id):
            await self._store.propose(command, local_only=True)

    def _list_replica_candidates(self) -> tuple[int, ...]:
        """Return the nodes that may host replicas of the system topics: all nodes that are not drained."""
        if not has_node_records(self._store.image):
            return self._driver.status.membership.voters
        return tuple(node.id for node in self._store.image.nodes.values() if not node.draining)

    def _can_place_replicas(self, candidates: tuple[int, ...]) -> bool:
        online = [broker.id for broker in self._store.image.brokers.values() if broker.is_online]
        waited = self._clock.monotonic() - self._leader_since
        return bool(online) and (set(candidates) <= set(online) or waited > SYSTEM_TOPICS_WAIT_SECONDS)
