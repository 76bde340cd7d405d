"""Letting nodes in: a known node that comes back on another disk becomes a learner, and a voter when it has caught up.

Asked by the node itself, done where the Raft leader is. Nothing is remembered between two questions but what the
membership in the log says, so a new leader goes on where the old one stopped. Why it is done so, and what it does not
protect from, is told in docs/decisions/2026-11-15-membership.md.
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
"""For a majority to write the changed membership. Whoever wants it asks again."""


class JoinRequest(msgspec.Struct, frozen=True, array_like=True):
    """A node that hears no leader tells which disk it is on; who it is, its connection says."""

    directory_id: bytes
    cluster_id: str = ""
    """That its disk belongs to, if it knows."""


class JoinAnswer(msgspec.Struct, frozen=True, array_like=True):
    knows_cluster: bool
    """Whether there is a cluster already: then whoever has an empty disk must not found another."""
    cluster_id: str = ""
    leads: bool = False
    """Whether it leads that cluster, as far as it knows."""


def are_strangers(cluster_id: str, other_id: str) -> bool:
    return bool(cluster_id and other_id) and cluster_id != other_id


JOIN: Final = TypedCall(CallKind.JOIN, JoinRequest, JoinAnswer)


class Admissions:
    """Made before the driver is started."""

    def __init__(self, store: RaftStore, driver: RaftDriver) -> None:
        self._store = store
        self._driver = driver
        self.has_heard_of_cluster = False
        """Told by a peer. Passed on, so that two nodes on empty disks cannot miss what one of them was told."""
        JOIN.serve(driver.transport.calls, self.answer)

    @property
    def holds_log(self) -> bool:
        """Whether this disk holds any part of a cluster's log, committed or not."""
        return self._driver.status.last_index > 0

    async def answer(self, peer: int, request: JoinRequest) -> JoinAnswer:
        status = self._driver.status
        cluster_id = self._store.image.cluster_id
        if are_strangers(cluster_id, request.cluster_id):
            # Let in, it would be given this cluster's log in place of its own.
            return JoinAnswer(True, cluster_id, status.role is Role.LEADER)
        member = status.membership.get(peer)
        if status.role is Role.LEADER and member is not None and self._is_replaced(member, request.directory_id):
            is_done = await self._change(AddLearner(peer, request.directory_id))
            if is_done:
                logger.warning("node %d is back on another disk: it begins again as a learner", peer)
        return JoinAnswer(self.holds_log or self.has_heard_of_cluster, cluster_id, status.role is Role.LEADER)

    def _is_replaced(self, member: Member, directory_id: bytes) -> bool:
        """Whether the seat is to pass to this disk. One that was never taken is bound by Raft itself; and one whose
        disk is still at work is not given away to a second process under the same id."""
        if member.directory_id in (UNBOUND, directory_id):
            return False
        broker = self._store.image.brokers.get(member.node_id)
        return broker is None or broker.fenced or broker.directory_id != member.directory_id

    async def promote_learners(self) -> None:
        """Where this node leads. One that holds the membership it stands in is alive, and on the disk it said."""
        status = self._driver.status
        for member in status.membership.members:
            has_caught_up = status.matches.get(member.node_id, 0) >= status.membership_index
            if not member.is_voter and has_caught_up and await self._change(PromoteLearner(member.node_id)):
                logger.info("node %d has caught up: it votes again", member.node_id)

    async def _change(self, change: Change) -> bool:
        """Whether it is done for certain; if not, the next question finds out."""
        try:
            await self._driver.change_membership(change, CHANGE_SECONDS)
        except (NotLeader, ProposalRefused, ProposalLost, OutcomeUnknown, DriverStopped) as error:
            logger.info("%s of node %d not done: %s", type(change).__name__, change.node_id, error)
            return False
        return True
