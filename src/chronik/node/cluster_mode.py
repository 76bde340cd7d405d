"""Cluster mode: metadata in a Raft log, and a broker that stays registered through heartbeats."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from chronik.broker.replica_manager import ReplicaManager
from chronik.clock import Clock
from chronik.config import NodeConfig, PeerConfig, initial_voters
from chronik.configs.resolver import ConfigResolver
from chronik.controller.controller import Controller
from chronik.controller.quorum_store import QuorumStore
from chronik.errors import ChronikError
from chronik.histogram import Histogram
from chronik.ids import format_id
from chronik.metadata.commands.brokers import BrokerStatus, Endpoint, UpdateBrokerStatus
from chronik.metadata.delta import Delta
from chronik.node.data_directory import DataDirectory
from chronik.node.http.admin_calls import AdminCalls
from chronik.node.membership_job import BootstrapGate, MembershipJob
from chronik.node.node_mode import BackgroundJob, build_register_broker_command
from chronik.node.peer_addresses import PeerAddresses
from chronik.node.registration import BrokerRegistration
from chronik.peers.handshake import derive_identity
from chronik.peers.tls import PeerTls
from chronik.peers.transport import PeerTransport
from chronik.quorum.driver import RaftDriver
from chronik.quorum.settings import DriverSettings
from chronik.quorum.watchdog import EventLoopWatchdog
from chronik.raft.events import RaftStatus
from chronik.raft.membership import NO_NODE, UNBOUND_DIRECTORY, Membership, RaftMember
from chronik.raft.roles import Role
from chronik.replication.replication import Replication
from chronik.request_reply import Dispatch
from chronik.scheduler import Scheduler
from chronik.transactions.coordinator import TransactionComponents
from chronik.transactions.peer_calls import TransactionPeerCalls

logger = logging.getLogger("chronik.node")

SHUTDOWN_PROPOSAL_SECONDS: Final = 1.5
"""The time limit in seconds for metadata proposals of a node that is shutting down and may soon lose the quorum."""


class ElectionCounts(msgspec.Struct):
    """Counters of a node's Raft candidacies, its election wins and the leader changes that it observed."""

    candidacies: int = 0
    elections_won: int = 0
    leader_changes: int = 0
    """Number of observed leader changes, including the first leader."""
    last_status: RaftStatus | None = None
    leader: int | None = None

    def record(self, status: RaftStatus) -> None:
        """Update the election counters after a change of this node's Raft role, term or known leader."""
        previous = self.last_status
        is_new = previous is None or (previous.role, previous.term) != (status.role, status.term)
        self.candidacies += is_new and status.role is Role.CANDIDATE
        self.elections_won += is_new and status.role is Role.LEADER
        if status.leader != NO_NODE and status.leader != self.leader:
            self.leader = status.leader
            self.leader_changes += 1
        self.last_status = status


class ClusterMode:
    """The mode of a node that is part of a cluster (see `NodeMode`)."""

    is_up_to_date: Final = False

    def __init__(
        self, config: NodeConfig, folder: DataDirectory, clock: Clock, on_fatal: Callable[[BaseException], None]
    ) -> None:
        """Create the components without starting them.

        Raises:
            ConfigError: The configuration of the peers is invalid.
        """
        self._config = config
        self._folder = folder
        self._clock = clock
        self._raft_addresses = {peer.id: peer.raft for peer in config.peers}
        self._session_seconds = config.broker_session_ms / 1000
        self._registration: BrokerRegistration | None = None
        self._replication: Replication | None = None
        self._replicas: ReplicaManager | None = None
        self.is_draining = False
        self._is_drained = False
        self._elections = ElectionCounts()
        self.store: Final = QuorumStore(config.node_id)
        hosts = [peer.raft.host for peer in config.peers]
        gate = BootstrapGate()
        self._tls = _create_peer_tls(config)
        self._transport = PeerTransport(
            derive_identity(config.cluster_name, config.node_id, config.cluster_secret, hosts),
            self._raft_addresses[config.node_id],
            self._raft_addresses,
            on_fatal,
            tls=self._tls,
        )
        self.transaction_peers: Final = TransactionPeerCalls(self._transport.calls)
        self.other_nodes: Final = AdminCalls(self._transport.calls)
        self.driver: Final = RaftDriver(
            DriverSettings(
                node_id=config.node_id,
                directory_id=folder.directory_id,
                bootstrap=_build_bootstrap_membership(config.peers),
                snapshot_entries=config.metadata_snapshot_entries,
                snapshot_bytes=config.metadata_snapshot_bytes,
                retained_log_bytes=config.metadata_kept_bytes,
            ),
            folder.files,
            self.store.machine,
            self._transport,
            on_fatal=on_fatal,
            on_status=self._on_raft_status_changed,
            is_message_allowed=gate.allows_message,
        )
        self.store.attach(self.driver)
        self._controller = Controller(
            self.store,
            self.driver,
            clock,
            self._raft_addresses,
            self._session_seconds,
            config.replication_factor,
            ConfigResolver(self.store, config.node_id, config.broker),
        )
        addresses = PeerAddresses(config.node_id, self._raft_addresses, self.store, self.driver, clock)
        admissions = self._controller.admissions
        admissions.on_admission_request = addresses.on_peer_connected
        self._membership_job = MembershipJob(self.driver, gate, admissions, clock, folder, addresses, config.peers)

    def _on_raft_status_changed(self, status: RaftStatus) -> None:
        self._elections.record(status)
        self.store.notify_leader_change()
        self._controller.on_status_changed(status)
        if self._registration is not None:
            self._registration.on_peer_reached(status.leader)

    @property
    def broker_epoch(self) -> int:
        return self._registration.epoch if self._registration is not None else -1

    @property
    def is_fenced(self) -> bool:
        return self._registration is None or self._registration.is_fenced

    @property
    def lease_expired_seconds(self) -> float:
        return math.inf if self._registration is None else -self._registration.lease_seconds

    @property
    def may_be_replaced(self) -> bool:
        return self._registration is None or self._registration.may_be_replaced

    @property
    def controller_id(self) -> int:
        return self.driver.leader

    def is_recently_lost(self, node_id: int) -> bool:
        """Return whether this node lost its connection to a peer less than one broker session timeout ago.

        After that, the controller's view is more reliable: a node that still sends heartbeats is only unreachable from
        this node.
        """
        return 0 < self._transport.down_seconds(node_id) < self._session_seconds

    def status(self) -> dict[str, Any]:
        raft = self.driver.status
        return {
            "role": raft.role.name.lower().replace("_", "-"),
            "term": raft.term,
            "commit_index": raft.commit_index,
            "first_index": raft.first_index,
            "last_index": raft.last_index,
            "snapshot_index": raft.snapshot_index,
            "members": [
                {"id": member.node_id, "voter": member.is_voter, "directory_id": format_id(member.directory_id)}
                for member in raft.membership.members
            ],
            "connected": list(raft.connected),
        }

    @property
    def sync_times(self) -> Histogram:
        return self.driver.sync_times

    @property
    def watchdog(self) -> EventLoopWatchdog:
        return self.driver.watchdog

    def raft_metrics(self) -> Mapping[str, int]:
        raft = self.driver.status
        return {
            "term": raft.term,
            "is_leader": raft.role is Role.LEADER,
            "leader": raft.leader,
            "first_index": raft.first_index,
            "last_index": raft.last_index,
            "snapshot_index": raft.snapshot_index,
            "commit_index": raft.commit_index,
            "applied_index": raft.applied_index,
            "apply_lag": max(raft.commit_index - raft.applied_index, 0),
            "connected_peers": len(raft.connected),
            "elections_total": self._elections.candidacies,
            "elections_won_total": self._elections.elections_won,
            "leader_changes_total": self._elections.leader_changes,
        }

    def start_replication(self, replicas: ReplicaManager, configs: ConfigResolver) -> None:
        self._replicas = replicas
        self._replication = Replication(
            self._config.node_id,
            self.store,
            replicas,
            configs,
            self._transport.calls,
            self._clock,
            lambda: self.broker_epoch,
        )

    def serve_transactions(self, parts: TransactionComponents) -> None:
        self.transaction_peers.serve(parts.appender, parts.joiner)

    def serve_other_nodes(
        self,
        dispatch: Dispatch,
        scheduler: Scheduler,
        status: Callable[[], dict[str, Any]],
        receive_health: Callable[[bytes], Awaitable[bytes]],
        answer_history_query: Callable[[bytes], Awaitable[bytes]],
    ) -> None:
        self.other_nodes.serve(dispatch, scheduler, status, receive_health, answer_history_query)

    async def report_health(self, node_id: int, report: bytes, timeout_s: float) -> bytes:
        return await self.other_nodes.report_health(node_id, report, timeout_s)

    async def bind(self) -> None:
        await self._transport.bind()

    async def join(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Start registering the broker without waiting, because there may be no quorum yet.

        Raises:
            ConfigError: Data directory and metadata do not belong together.
        """
        self.store.subscribe(self._store_cluster_id)
        command = build_register_broker_command(
            self._config,
            endpoints,
            self._folder.directory_id,
            self.store.incarnation,
            is_durable=self._config.flush == "group",
        )
        self._registration = BrokerRegistration(
            self.store, self.driver, self._controller, self._clock, command, self._session_seconds
        )
        self._transport.on_connected.append(self._registration.on_peer_reached)
        if self._replicas is not None:
            self._registration.fencing_callbacks.append(self._replicas.fail_waiters)

    def _store_cluster_id(self, delta: Delta) -> None:
        """Store the cluster id in the data directory as soon as the metadata contains it."""
        if self.store.image.cluster_id:
            self._folder.check_cluster(self.store.image.cluster_id)

    async def drain(self) -> None:
        self.is_draining = True
        is_fenced = self._registration is None or self.is_fenced
        # A fenced node has no quorum: waiting for its proposals would only delay the shutdown.
        self.store.limit_proposals(0.0 if is_fenced else SHUTDOWN_PROPOSAL_SECONDS)
        if is_fenced:
            logger.info("shutdown: broker %d is fenced; skipping leadership transfer", self._config.node_id)
            return
        try:
            drain_command = UpdateBrokerStatus(self._config.node_id, BrokerStatus.MAINTENANCE, self.broker_epoch)
            await self.store.propose(drain_command, SHUTDOWN_PROPOSAL_SECONDS)
            self._is_drained = True
        except ChronikError as error:
            logger.info("shutdown: leadership transfer failed: %s; stopping anyway", error)

    async def report_offline(self) -> None:
        if self._registration is None or self.is_fenced:
            return
        if not self._is_drained:  # no quorum was reachable: do not wait for responses
            await self._registration.stop_heartbeats(0.0)
            if self._replicas is not None:
                self._replicas.fail_waiters()
            return
        await self._registration.stop_heartbeats()
        try:
            offline_command = UpdateBrokerStatus(self._config.node_id, BrokerStatus.OFFLINE, self.broker_epoch)
            await self.store.propose(offline_command, SHUTDOWN_PROPOSAL_SECONDS)
            raft = self.driver.status
            voters = raft.membership.voters
            successors = [
                (raft.match_indexes[peer], peer)
                for peer in raft.connected
                if peer in raft.match_indexes and peer in voters
            ]
            if raft.role is Role.LEADER and successors:
                await self.driver.transfer_leadership(max(successors)[1], SHUTDOWN_PROPOSAL_SECONDS)
        except ChronikError as error:
            logger.info(
                "shutdown: reporting broker %d as offline failed: %s; stopping anyway", self._config.node_id, error
            )

    def background_jobs(self, when_up_to_date: Callable[[], None]) -> list[BackgroundJob]:
        registration = self._registration
        assert registration is not None

        async def wait_until_registered() -> None:
            """Wait until this broker is registered, by which time all earlier log entries have been applied."""
            await registration.registered.wait()
            when_up_to_date()

        jobs: list[BackgroundJob] = [
            self._membership_job.run,
            self._controller.run,
            registration.run,
            registration.watch_lease,
            wait_until_registered,
        ]
        if self._tls is not None:
            jobs.append(self._tls.reload_changed_certificates)
        return jobs if self._replication is None else [*jobs, *self._replication.jobs()]


def _create_peer_tls(config: NodeConfig) -> PeerTls | None:
    """Return the TLS configuration of peer connections, or None if they do not use TLS.

    Raises:
        ConfigError: A certificate file cannot be loaded.
    """
    if config.peer_keystore is None or config.peer_truststore is None:
        return None
    return PeerTls(config.peer_keystore, config.peer_truststore, is_required=config.peer_tls == "required")


def _build_bootstrap_membership(peers: Sequence[PeerConfig]) -> Membership:
    """Return the initial Raft membership of a new cluster, in which no node's directory id is known yet."""
    voters = initial_voters(peers)
    return Membership(tuple(RaftMember(peer.id, UNBOUND_DIRECTORY, peer.id in voters) for peer in sorted(peers)))
