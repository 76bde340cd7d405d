"""Who takes part in the metadata log: nodes ask to be let in, and the Raft leader does what the image means to be.

The node itself asks, as only it knows its disk: one that was added becomes a learner, and a known one that comes back
on another disk begins again as one. All else follows from the image: see `reconciling`. Nothing is remembered between
two questions but what image and membership say, so a new leader goes on where the old one stopped. Why it is done this
way, and what it does not protect from, is explained in docs/decisions/2026-11-15-membership.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from chronik.controller.reconciling import HandOver, Seen, Step, next_step
from chronik.metadata import levels
from chronik.metadata.commands.cluster import UpdateNode
from chronik.metadata.image import Image
from chronik.metadata.stores.raft_store import RaftStore
from chronik.peers.call_kinds import CallKind
from chronik.peers.calls import TypedCall
from chronik.protocol.errors import KafkaError
from chronik.quorum.driver import RaftDriver
from chronik.quorum.outcomes import DriverStopped, NotLeader, OutcomeUnknown, ProposalLost, ProposalRefused
from chronik.quorum.settings import DriverStatus
from chronik.raft.membership import (
    UNBOUND,
    AddLearner,
    Change,
    DemoteVoter,
    Member,
    Membership,
    PromoteLearner,
    RemoveNode,
)
from chronik.raft.roles import Role

logger = logging.getLogger("chronik.controller")

CHANGE_SECONDS: Final = 2.0
"""Time for a majority to write the changed membership. A node that is not let in asks again."""

HEARD_SECONDS: Final = 2.0
"""How long ago a member may have been heard to count as being there: many heartbeats."""

STEPS_AT_ONCE_MAX: Final = 8
"""Steps that are taken before the controller looks after other things again."""


class JoinRequest(msgspec.Struct, frozen=True, array_like=True):
    """Sent by a node that hears no leader: which disk it is on, and where. Who it is, its connection says."""

    directory_id: bytes
    cluster_id: str = ""
    """The cluster that its disk belongs to, if it knows."""
    host: str = ""
    port: int = 0
    """Where its peers find it; empty from a node of an earlier version."""


class JoinAnswer(msgspec.Struct, frozen=True, array_like=True):
    knows_cluster: bool
    """Whether there is a cluster already: then a node with an empty disk must not found another."""
    cluster_id: str = ""
    leads: bool = False
    """Whether the answering node leads that cluster, as far as it knows."""
    is_expected: bool = True
    """Whether the asking node belongs to the cluster, as far as the answering one knows."""
    nodes: tuple[tuple[int, str, int], ...] = ()
    """Those that belong to the cluster, with host and port; nobody while it does not name its nodes."""


def are_strangers(cluster_id: str, other_id: str) -> bool:
    return bool(cluster_id and other_id) and cluster_id != other_id


def names_its_nodes(image: Image) -> bool:
    """Whether the nodes in the image are all that there are meant to be."""
    is_founded = bool(image.cluster_id and image.nodes)
    return is_founded and levels.level_of(image.features) >= levels.GROWTH


def unnoted_members(image: Image, membership: Membership) -> list[Member]:
    """Returns the members that are not among the nodes, and are not to be removed: all of them below level 3, and while
    a cluster is founded; later those that are brokers, if the level was raised before they were noted."""
    missing = [member for member in membership.members if member.node_id not in image.nodes]
    return [member for member in missing if not names_its_nodes(image) or member.node_id in image.brokers]


JOIN: Final = TypedCall(CallKind.JOIN, JoinRequest, JoinAnswer)


class Admissions:
    """Must be made before the driver is started."""

    def __init__(self, store: RaftStore, driver: RaftDriver) -> None:
        self._store = store
        self._driver = driver
        self.has_heard_of_cluster = False
        """The cluster id that a peer told. It is passed on, so that what one of two nodes on empty disks was told, the
        other hears, too."""
        self.when_asked: Callable[[int, str, int], None] = lambda peer, host, port: None
        """Is told where a node is that asks: whoever asks hears no leader, and so may be unknown to who is asked."""
        JOIN.serve(driver.transport.calls, self.answer)

    @property
    def holds_log(self) -> bool:
        """Whether this disk holds any part of a cluster's log, committed or not."""
        return self._driver.status.last_index > 0

    # Letting nodes in

    async def answer(self, peer: int, request: JoinRequest) -> JoinAnswer:
        status, image = self._driver.status, self._store.image
        leads = status.role is Role.LEADER
        if are_strangers(image.cluster_id, request.cluster_id):
            # If it were let in, this cluster's log would replace its own.
            return JoinAnswer(True, image.cluster_id, leads)
        if request.host:
            self.when_asked(peer, request.host, request.port)
        is_expected = peer in image.nodes or not names_its_nodes(image)
        if leads and is_expected:
            await self._admit(peer, request, status)
        knows_cluster = self.holds_log or self.has_heard_of_cluster
        # Below level 3 the files say where nodes are, and nobody notes it in the image when one moves.
        known = image.nodes.values() if names_its_nodes(image) else ()
        nodes = tuple((node.id, node.host, node.port) for node in known)
        return JoinAnswer(knows_cluster, image.cluster_id, leads, is_expected, nodes)

    async def _admit(self, peer: int, request: JoinRequest, status: DriverStatus) -> None:
        member = status.membership.get(peer)
        if member is None:
            # What the image says is committed, so that every node that has the membership can know the address, too.
            if peer in self._store.image.nodes and names_its_nodes(self._store.image):
                await self._change(AddLearner(peer, request.directory_id), "node %d is let in, as a learner")
        elif self._is_replaced(member, request.directory_id):
            told = "node %d is back on another disk: it begins again as a learner"
            await self._change(AddLearner(peer, request.directory_id), told, logging.WARNING)
        if member is None or member.directory_id in (UNBOUND, request.directory_id):
            await self.note_move(peer, request.host, request.port)

    def _is_replaced(self, member: Member, directory_id: bytes) -> bool:
        """Whether the seat passes to this disk. A seat that was never taken is bound by Raft itself; and one whose disk
        is still in use is not given to a second process under the same id."""
        if member.directory_id in (UNBOUND, directory_id):
            return False
        broker = self._store.image.brokers.get(member.node_id)
        return broker is None or broker.fenced or broker.directory_id != member.directory_id

    async def note_move(self, node_id: int, host: str, port: int) -> None:
        """Notes where a node is that says so, if the others look for it elsewhere."""
        image = self._store.image
        node = image.nodes.get(node_id)
        if not names_its_nodes(image) or node is None or not host or (node.host, node.port) == (host, port):
            return
        try:
            await self._store.propose(UpdateNode(node_id, host, port), only_here=True)
        except KafkaError as error:
            logger.info("node %d is not noted at %s:%d: %s", node_id, host, port, error)
        else:
            logger.warning("node %d has moved to %s:%d", node_id, host, port)

    # Doing what the image means to be

    async def reconcile(self) -> None:
        """Takes the next steps, if this node leads."""
        image = self._store.image
        if not names_its_nodes(image):
            await self._promote_learners()
            return
        if unnoted_members(image, self._driver.status.membership):
            return  # the controller notes them first
        for _ in range(STEPS_AT_ONCE_MAX):
            step = next_step(self._seen())
            if step is None or not await self._take(step):
                return

    def _seen(self) -> Seen:
        status = self._driver.status
        return Seen(
            leader=self._driver.node_id,
            nodes=self._store.image.nodes,
            membership=status.membership,
            membership_index=status.membership_index,
            matches=status.matches,
            heard=self._heard(status),
        )

    def _heard(self, status: DriverStatus) -> set[int]:
        """Of members counts what Raft heard; whoever is no member yet is there while something can be sent to it. Who
        has just been heard and is gone, since its port refuses, is not there."""
        heard = {peer for peer, times in status.peer_times.items() if status.now - times.heard <= HEARD_SECONDS}
        strangers = {peer for peer in status.connected if status.membership.get(peer) is None}
        is_gone = self._driver.transport.gone_seconds
        return {self._driver.node_id, *(peer for peer in heard | strangers if not is_gone(peer))}

    async def _take(self, step: Step) -> bool:
        match step:
            case HandOver(heir):
                return await self._hand_over(heir)
            case PromoteLearner():
                return await self._change(step, "node %d has caught up: it votes")
            case DemoteVoter():
                return await self._change(step, "node %d does not vote any more")
            case RemoveNode():
                return await self._change(step, "node %d is removed")

    async def _promote_learners(self) -> None:
        """Promotes all that have caught up: below level 3 every member is meant to vote."""
        status = self._driver.status
        for member in status.membership.members:
            has_caught_up = status.matches.get(member.node_id, 0) >= status.membership_index
            if not member.is_voter and has_caught_up:
                await self._change(PromoteLearner(member.node_id), "node %d has caught up: it votes")

    async def _change(self, change: Change, told: str, level: int = logging.INFO) -> bool:
        """Returns whether it is done for certain; if not, the next question, or the next look, finds out."""
        try:
            await self._driver.change_membership(change, CHANGE_SECONDS)
        except (NotLeader, ProposalRefused, ProposalLost, OutcomeUnknown, DriverStopped) as error:
            logger.info("%s of node %d not done: %s", type(change).__name__, change.node_id, error)
            return False
        logger.log(level, told, change.node_id)
        return True

    async def _hand_over(self, heir: int) -> bool:
        """Returns False: what comes next is for the heir to do."""
        try:
            await self._driver.transfer_leadership(heir, CHANGE_SECONDS)
        except (NotLeader, ProposalRefused, OutcomeUnknown, DriverStopped) as error:
            logger.info("leadership was not handed over to node %d: %s", heir, error)
        else:
            logger.info("this node is to go, or is drained: node %d leads", heir)
        return False
