"""Admission of nodes and reconciliation of the Raft membership with the metadata image.

A node itself requests admission, because only it knows its directory id: a new node becomes a learner, and so does a
node that returns with another disk. All other changes follow from the image (see `reconciliation`). No state is kept
between requests, so a new leader continues where the previous one stopped.
docs/internals/decisions/2026-11-15-bootstrap-and-replaced-disks.md explains the design and its limits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from chronik.controller.reconciliation import MembershipView, ReconciliationStep, TransferLeader, select_next_step
from chronik.metadata import levels
from chronik.metadata.commands.cluster import UpdateNode
from chronik.metadata.image import Image
from chronik.metadata.stores.raft_store import RaftStore
from chronik.peers.calls import CallKind, TypedCall
from chronik.protocol.errors import KafkaError
from chronik.quorum.driver import RaftDriver
from chronik.quorum.outcomes import DriverStopped, NotLeader, OutcomeUnknown, ProposalLost, ProposalRejected
from chronik.quorum.settings import DriverStatus
from chronik.raft.membership import (
    UNBOUND_DIRECTORY,
    AddLearner,
    DemoteVoter,
    Membership,
    MembershipChange,
    PromoteLearner,
    RaftMember,
    RemoveMember,
)
from chronik.raft.roles import Role

logger = logging.getLogger("chronik.controller")

CHANGE_SECONDS: Final = 2.0
"""Timeout of a Raft membership change in seconds. A node that is not admitted in time retries."""

ACTIVE_SECONDS: Final = 2.0
"""Seconds without messages after which a Raft member no longer counts as active: several heartbeat intervals."""

CHANGES_PER_CHECK_MAX: Final = 8
"""Maximum number of consecutive Raft membership changes before the controller continues with other work."""


class AdmissionRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request for admission to the cluster, sent by a node that knows no leader.

    The connection authenticates the node id.
    """

    directory_id: bytes
    cluster_id: str = ""
    """Cluster to which the node's data directory belongs, if known."""
    host: str = ""
    port: int = 0
    """Address at which peers reach the node; empty from a node of an earlier version."""


class AdmissionResponse(msgspec.Struct, frozen=True, array_like=True):
    """The response to a request for admission."""

    knows_cluster: bool
    """Whether the responding node knows of an existing cluster, so that the requesting node must not bootstrap another.
    """
    cluster_id: str = ""
    is_leader: bool = False
    """Whether the responding node believes that it is the leader."""
    is_expected: bool = True
    """Whether the requesting node belongs to the cluster, according to the metadata of the responding node."""
    nodes: tuple[tuple[int, str, int], ...] = ()
    """Nodes of the cluster with host and port; empty before the cluster has node records."""


def are_different_clusters(cluster_id: str, other_id: str) -> bool:
    return bool(cluster_id and other_id) and cluster_id != other_id


def has_node_records(image: Image) -> bool:
    """Return whether the metadata image has a record of every node of the cluster."""
    is_bootstrapped = bool(image.cluster_id and image.nodes)
    return is_bootstrapped and levels.get_cluster_level(image.features) >= levels.DYNAMIC_MEMBERSHIP_LEVEL


def find_members_without_node_record(image: Image, membership: Membership) -> list[RaftMember]:
    """Return the Raft members that need a node record. Other members without a record are to be removed.

    These are all members below feature level 3 and during bootstrap, and later those that are registered brokers.
    """
    missing = [member for member in membership.members if member.node_id not in image.nodes]
    return [member for member in missing if not has_node_records(image) or member.node_id in image.brokers]


JOIN: Final = TypedCall(CallKind.JOIN, AdmissionRequest, AdmissionResponse)


class NodeAdmission:
    """The controller's component that admits nodes to the cluster and changes the Raft membership.

    Create it before the driver is started.
    """

    def __init__(self, store: RaftStore, driver: RaftDriver) -> None:
        self._store = store
        self._driver = driver
        self.has_seen_cluster = False
        """Whether a peer has reported a cluster id. Reported to nodes with empty disks, which then do not bootstrap."""
        self.on_admission_request: Callable[[int, str, int], None] = lambda peer, host, port: None
        """Callback that receives the id, host and port of each node that requests admission."""
        JOIN.serve(driver.transport.calls, self.handle_request)

    @property
    def has_log(self) -> bool:
        """Whether the local disk contains any entries of a metadata log, committed or not."""
        return self._driver.status.last_index > 0

    # -- admission of nodes

    async def handle_request(self, peer: int, request: AdmissionRequest) -> AdmissionResponse:
        """Respond to a request for admission, and admit the node if this node is the leader."""
        status, image = self._driver.status, self._store.image
        leads = status.role is Role.LEADER
        if are_different_clusters(image.cluster_id, request.cluster_id):
            # If the node were admitted, this cluster's log would replace its own.
            return AdmissionResponse(True, image.cluster_id, leads)
        if request.host:
            self.on_admission_request(peer, request.host, request.port)
        is_expected = peer in image.nodes or not has_node_records(image)
        if leads and is_expected:
            await self._admit_node(peer, request, status)
        knows_cluster = self.has_log or self.has_seen_cluster
        # Below level 3, addresses come from the configuration files and are not maintained in the image.
        known = image.nodes.values() if has_node_records(image) else ()
        nodes = tuple((node.id, node.host, node.port) for node in known)
        return AdmissionResponse(knows_cluster, image.cluster_id, leads, is_expected, nodes)

    async def _admit_node(self, peer: int, request: AdmissionRequest, status: DriverStatus) -> None:
        member = status.membership.get(peer)
        if member is None:
            # The image is committed, so every node that has the membership can know the address, too.
            if peer in self._store.image.nodes and has_node_records(self._store.image):
                await self._propose_change(AddLearner(peer, request.directory_id), "node %d: admitted as a learner")
        elif self._can_replace_directory(member, request.directory_id):
            message = "node %d: returned with another data directory; added again as a learner"
            await self._propose_change(AddLearner(peer, request.directory_id), message, logging.WARNING)
        if member is None or member.directory_id in (UNBOUND_DIRECTORY, request.directory_id):
            await self.record_address(peer, request.host, request.port)

    def _can_replace_directory(self, member: RaftMember, directory_id: bytes) -> bool:
        """Return whether the member may be bound to another data directory, as after the loss of its disk.

        Raft itself binds an unbound member. A directory that is still in use is not replaced, because a second process
        may run under the same id.
        """
        if member.directory_id in (UNBOUND_DIRECTORY, directory_id):
            return False
        broker = self._store.image.brokers.get(member.node_id)
        return broker is None or broker.is_fenced or broker.directory_id != member.directory_id

    async def record_address(self, node_id: int, host: str, port: int) -> None:
        """Store a node's address in the metadata if it has changed."""
        image = self._store.image
        node = image.nodes.get(node_id)
        if not has_node_records(image) or node is None or not host or (node.host, node.port) == (host, port):
            return
        try:
            await self._store.propose(UpdateNode(node_id, host, port), local_only=True)
        except KafkaError as error:
            logger.info("node %d: update of its address to %s:%d failed: %s; retrying", node_id, host, port, error)
        else:
            logger.warning("node %d: address changed to %s:%d", node_id, host, port)

    # -- reconciliation

    async def reconcile(self) -> None:
        """Execute pending Raft membership changes if this node is the leader."""
        image = self._store.image
        if not has_node_records(image):
            await self._promote_learners()
            return
        if find_members_without_node_record(image, self._driver.status.membership):
            return  # the controller adds their node records first
        for _ in range(CHANGES_PER_CHECK_MAX):
            step = select_next_step(self._build_membership_view())
            if step is None or not await self._execute_step(step):
                return

    def _build_membership_view(self) -> MembershipView:
        status = self._driver.status
        return MembershipView(
            leader=self._driver.node_id,
            nodes=self._store.image.nodes,
            membership=status.membership,
            membership_index=status.membership_index,
            match_indexes=status.match_indexes,
            active=self._find_active_nodes(status),
        )

    def _find_active_nodes(self, status: DriverStatus) -> set[int]:
        """Return the active nodes: members with recent messages, and connected nodes that are not members yet.

        Nodes whose ports refuse connections are not active.
        """
        active = {
            peer for peer, times in status.peer_activity.items() if status.now - times.last_contact <= ACTIVE_SECONDS
        }
        non_members = {peer for peer in status.connected if status.membership.get(peer) is None}
        down_seconds = self._driver.transport.down_seconds
        return {self._driver.node_id, *(peer for peer in active | non_members if not down_seconds(peer))}

    async def _execute_step(self, step: ReconciliationStep) -> bool:
        match step:
            case TransferLeader(successor):
                return await self._transfer_leadership(successor)
            case PromoteLearner():
                return await self._propose_change(step, "node %d: caught up; promoted to voter")
            case DemoteVoter():
                return await self._propose_change(step, "node %d: demoted to learner")
            case RemoveMember():
                return await self._propose_change(step, "node %d: removed from the Raft membership")

    async def _promote_learners(self) -> None:
        """Make every learner that has caught up a voter, because below feature level 3 all members are intended as
        voters.
        """
        status = self._driver.status
        for member in status.membership.members:
            has_caught_up = status.match_indexes.get(member.node_id, 0) >= status.membership_index
            if not member.is_voter and has_caught_up:
                await self._propose_change(PromoteLearner(member.node_id), "node %d: caught up; promoted to voter")

    async def _propose_change(self, change: MembershipChange, message: str, level: int = logging.INFO) -> bool:
        """Propose a Raft membership change and log its outcome. Return whether it is known to be committed."""
        try:
            await self._driver.change_membership(change, CHANGE_SECONDS)
        except (NotLeader, ProposalRejected, ProposalLost, OutcomeUnknown, DriverStopped) as error:
            logger.info(
                "membership change failed: change=%s node=%d: %s; retrying",
                type(change).__name__,
                change.node_id,
                error,
            )
            return False
        logger.log(level, message, change.node_id)
        return True

    async def _transfer_leadership(self, successor: int) -> bool:
        """Transfer the Raft leadership to another node. Return False, because the new leader makes further changes."""
        try:
            await self._driver.transfer_leadership(successor, CHANGE_SECONDS)
        except (NotLeader, ProposalRejected, OutcomeUnknown, DriverStopped) as error:
            logger.info("leadership transfer to node %d failed: %s; retrying", successor, error)
        else:
            logger.info("leadership transferred to node %d: this node is being removed or drained", successor)
        return False
