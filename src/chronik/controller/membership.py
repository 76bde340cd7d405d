"""Letting nodes in: a known node that comes back on another disk becomes a learner, and a voter when it has caught up.

The node itself asks, and the Raft leader does it. Nothing is remembered between two questions but what the membership
in the log says, so a new leader goes on where the old one stopped. Why it is done this way, and what it does not
protect from, is explained in docs/decisions/2026-11-15-membership.md.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from chronik.metadata.stores.raft_store import RaftStore
from chronik.peers.call_kinds import CallKind
from chronik.peers.calls import TypedCall
from chronik.quorum.driver import RaftDriver
from chronik.quorum.outcomes import DriverStopped, NotLeader, OutcomeUnknown, ProposalLost, ProposalRefused
from chronik.raft.membership import UNBOUND, AddLearner, Change, Member, PromoteLearner
from chronik.raft.roles import Role

logger = logging.getLogger("chronik.controller")

CHANGE_SECONDS: Final = 2.0
"""Time for a majority to write the changed membership. A node that is not let in asks again."""


class JoinRequest(msgspec.Struct, frozen=True, array_like=True):
    """Sent by a node that hears no leader: which disk it is on. Who it is, its connection says."""

    directory_id: bytes
    cluster_id: str = ""
    """The cluster that its disk belongs to, if it knows."""


class JoinAnswer(msgspec.Struct, frozen=True, array_like=True):
    knows_cluster: bool
    """Whether there is a cluster already: then a node with an empty disk must not found another."""
    cluster_id: str = ""
    leads: bool = False
    """Whether the answering node leads that cluster, as far as it knows."""


def are_strangers(cluster_id: str, other_id: str) -> bool:
    return bool(cluster_id and other_id) and cluster_id != other_id


JOIN: Final = TypedCall(CallKind.JOIN, JoinRequest, JoinAnswer)


class Admissions:
    """Must be made before the driver is started."""

    def __init__(self, store: RaftStore, driver: RaftDriver) -> None:
        self._store = store
        self._driver = driver
        self.has_heard_of_cluster = False
        """The cluster id that a peer told. It is passed on, so that what one of two nodes on empty disks was told, the
        other hears, too."""
        JOIN.serve(driver.transport.calls, self.answer)

    @property
    def holds_log(self) -> bool:
        """Whether this disk holds any part of a cluster's log, committed or not."""
        return self._driver.status.last_index > 0

    async def answer(self, peer: int, request: JoinRequest) -> JoinAnswer:
        status = self._driver.status
        cluster_id = self._store.image.cluster_id
        if are_strangers(cluster_id, request.cluster_id):
            # If it were let in, this cluster's log would replace its own.
            return JoinAnswer(True, cluster_id, status.role is Role.LEADER)
        member = status.membership.get(peer)
        if status.role is Role.LEADER and member is not None and self._is_replaced(member, request.directory_id):
            is_done = await self._change(AddLearner(peer, request.directory_id))
            if is_done:
                logger.warning("node %d is back on another disk: it begins again as a learner", peer)
        return JoinAnswer(self.holds_log or self.has_heard_of_cluster, cluster_id, status.role is Role.LEADER)

    def _is_replaced(self, member: Member, directory_id: bytes) -> bool:
        """Whether the seat passes to this disk. A seat that was never taken is bound by Raft itself; and one whose disk
        is still in use is not given to a second process under the same id."""
        if member.directory_id in (UNBOUND, directory_id):
            return False
        broker = self._store.image.brokers.get(member.node_id)
        return broker is None or broker.fenced or broker.directory_id != member.directory_id

    async def promote_learners(self) -> None:
        """Does so if this node leads. A learner that holds the membership which names it is alive, and on that disk."""
        status = self._driver.status
        for member in status.membership.members:
            has_caught_up = status.matches.get(member.node_id, 0) >= status.membership_index
            if not member.is_voter and has_caught_up and await self._change(PromoteLearner(member.node_id)):
                logger.info("node %d has caught up: it votes again", member.node_id)

    async def _change(self, change: Change) -> bool:
        """Returns whether it is done for certain; if not, the next question finds out."""
        try:
            await self._driver.change_membership(change, CHANGE_SECONDS)
        except (NotLeader, ProposalRefused, ProposalLost, OutcomeUnknown, DriverStopped) as error:
            logger.info("%s of node %d not done: %s", type(change).__name__, change.node_id, error)
            return False
        return True
