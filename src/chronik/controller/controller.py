"""The controller: it exists on every node, and works on the Raft leader.

It makes sure that the cluster has an id, its nodes and its system topics, and it decides by heartbeats who is alive.
Everything it decides is a command; a second controller, which may exist for a moment, can only repeat one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from chronik.clock import Clock
from chronik.config import Address
from chronik.configs.resolver import ConfigResolver
from chronik.controller.confirming import Confirming
from chronik.controller.heartbeats import HEARTBEAT, BrokerHeartbeat, HeartbeatAnswer
from chronik.controller.liveness import GONE_SECONDS, Liveness
from chronik.controller.membership import Admissions, names_its_nodes, unnoted_members
from chronik.controller.system_topics import system_topic_changes, system_topics
from chronik.controller.upkeep import PartitionUpkeep
from chronik.ids import format_id, new_id
from chronik.metadata import levels
from chronik.metadata.commands.cluster import AddNode, CreateCluster, SetFeatureLevel
from chronik.metadata.commands.topics import CreateTopics
from chronik.metadata.names import SYSTEM_TOPICS
from chronik.metadata.stores.raft_store import RaftStore
from chronik.metadata.stores.store import StoreClosed
from chronik.news import News
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.quorum.driver import RaftDriver
from chronik.quorum.outcomes import DriverStopped, NotLeader, OutcomeUnknown, ProposalRefused, ReadTimedOut
from chronik.raft.events import Status
from chronik.raft.membership import NOBODY
from chronik.raft.roles import Role

logger = logging.getLogger("chronik.controller")

LOOKS_PER_SESSION: Final = 6
"""How often to look for silent brokers: one is found dead at most a sixth of a session too late."""

TOPIC_CREATED: Final = "system topic %s created: partitions=%d %s"

SYSTEM_TOPICS_PATIENCE_SECONDS: Final = 5.0
"""How long the first leader waits for all nodes before it spreads the system topics over those that are online."""


class Controller:
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
        self._liveness = Liveness(session_seconds)
        self._is_leader = False
        self._leads_since = 0.0
        self._looked_at = 0.0
        self._predecessor = NOBODY
        self._news = News()
        self._upkeep = PartitionUpkeep(store, configs, clock)
        self._confirming = Confirming(lambda: driver.read_index(session_seconds))
        self.admissions: Final = Admissions(store, driver)
        HEARTBEAT.serve(driver.transport.calls, self.heartbeat)

    def status_changed(self, status: Status) -> None:
        leads = status.role is Role.LEADER
        if leads and not self._is_leader:
            self._leads_since = self._looked_at = self._clock.monotonic()
            self._liveness.begin(self._leads_since, self._predecessor)
            self._upkeep.begin()
        self._is_leader = leads
        if status.leader != NOBODY:
            self._predecessor = status.leader
        self._news.tell()

    async def heartbeat(self, peer: int, beat: BrokerHeartbeat) -> HeartbeatAnswer:
        """Answers as the leader, once a majority has confirmed that it is. After a session the answer is worthless."""
        arrived_at = self._clock.monotonic()
        if not self._is_leader:
            return HeartbeatAnswer(is_leader=False)
        try:
            await self._confirming.confirmed(len(self._store.image.brokers))
        except (NotLeader, ReadTimedOut, ProposalRefused, OutcomeUnknown, DriverStopped):
            return HeartbeatAnswer(is_leader=False)
        broker = self._store.image.brokers.get(beat.broker_id)
        is_known = broker is not None and broker.epoch == beat.broker_epoch
        if is_known:
            self._liveness.heard(beat.broker_id, beat.broker_epoch, arrived_at, beat.answered_at)
            if broker is not None and broker.fenced:
                self._news.tell()
        return HeartbeatAnswer(True, is_known, self._store.image.applied_index, arrived_at)

    async def run(self) -> None:
        while True:
            heard = self._news.count
            if self._is_leader:
                try:
                    await self._confirm_leadership()
                    await self._found_cluster()
                    await self._judge()
                    await self.admissions.reconcile()
                    await self._mend_system_topics()
                    await self._upkeep.look()
                except KafkaError as error:
                    logger.info("not decided yet: %s", error)
                except StoreClosed:
                    return
            await self._news.since(heard, self._seconds_until_next_look())

    async def _confirm_leadership(self) -> None:
        """Makes sure that this node leads, and knows what earlier leaders decided, which would otherwise look like the
        brokers' own farewell. A node that was paused believes that it leads, and that everybody else is silent."""
        self._notice_pauses()
        try:
            index = await self._driver.read_index(self._session_seconds)
            await self._driver.wait_applied(index, self._session_seconds)
        except (NotLeader, ReadTimedOut, ProposalRefused, OutcomeUnknown) as error:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"Not confirmed as leader: {error}") from error
        except DriverStopped as error:
            raise StoreClosed(str(error)) from error
        self._notice_pauses()

    def _notice_pauses(self) -> None:
        now = self._clock.monotonic()
        if now - self._looked_at > self._session_seconds:
            self._liveness.begin(now)
        self._looked_at = now

    def _seconds_until_next_look(self) -> float:
        """Short enough to find out who is gone about as soon as that is certain."""
        until_certain = [GONE_SECONDS - gone for gone in self._gone_seconds().values() if 0 < gone < GONE_SECONDS]
        return min([self._session_seconds / LOOKS_PER_SESSION, GONE_SECONDS, *until_certain])

    def _gone_seconds(self) -> dict[int, float]:
        gone_seconds = self._driver.transport.gone_seconds
        return {broker_id: gone_seconds(broker_id) for broker_id in self._store.image.brokers}

    async def _judge(self) -> None:
        brokers = self._store.image.brokers
        for change in self._liveness.changes(brokers, self._clock.monotonic(), self._gone_seconds()):
            result = await self._store.propose(change, only_here=True)
            broker = self._store.image.brokers.get(change.broker_id)
            status = broker.status if broker is not None else change.status
            logger.info("broker %d is %s: %s", change.broker_id, status.value, self._store.position(result.index))

    async def _found_cluster(self) -> None:
        image = self._store.image
        if not image.cluster_id:
            level = levels.founding_level(image.brokers)
            if level > levels.level_of(image.features):
                await self._store.propose(SetFeatureLevel(levels.FEATURE, level), only_here=True)
            await self._note_members()
            created = CreateCluster(format_id(new_id()), self._clock.now_ms())
            result = await self._store.propose(created, only_here=True)
            logger.info("cluster created: id=%s %s", created.cluster_id, self._store.position(result.index))
        else:
            await self._note_members()
        missing = [name for name in SYSTEM_TOPICS if name not in image.topics]
        holders = self._holders() if missing else ()
        if missing and self._may_place(holders):
            commands = system_topics(image, missing, holders, self._replication_factor, self._clock.now_ms(), new_id)
            result = await self._store.propose(CreateTopics(commands), only_here=True)
            failed = {failure.item: failure.message for failure in result.failures}
            position = self._store.position(result.index)
            for item, command in enumerate(commands):
                if item in failed:
                    logger.warning("system topic %s not created: %s; %s", command.name, failed[item], position)
                else:
                    logger.info(TOPIC_CREATED, command.name, len(command.partitions), position)

    async def _note_members(self) -> None:
        """Adds to the nodes who is missing there. The cluster has no id before all of its members are noted: from then
        on, at level 3, one that is not among the nodes is to be removed."""
        for member in unnoted_members(self._store.image, self._driver.status.membership):
            address = self._raft_addresses.get(member.node_id)
            if address is not None:
                command = AddNode(member.node_id, address.host, address.port, member.is_voter)
                await self._store.propose(command, only_here=True)

    async def _mend_system_topics(self) -> None:
        image = self._store.image
        for command in system_topic_changes(image, self._driver.node_id):
            await self._store.propose(command, only_here=True)

    def _holders(self) -> tuple[int, ...]:
        """Returns who may hold the system topics: all nodes, voters or not, but for those that are drained."""
        if not names_its_nodes(self._store.image):
            return self._driver.status.membership.voters
        return tuple(node.id for node in self._store.image.nodes.values() if not node.draining)

    def _may_place(self, holders: tuple[int, ...]) -> bool:
        online = [broker.id for broker in self._store.image.brokers.values() if broker.online]
        waited = self._clock.monotonic() - self._leads_since
        return bool(online) and (set(holders) <= set(online) or waited > SYSTEM_TOPICS_PATIENCE_SECONDS)
