"""A node that hears no leader asks the others: is there a cluster, and may this disk be part of it?

The leader never speaks to a disk that replaced another, since it means the old one, nor to a node that it does not know
of; the answer to this question is the way in. On an empty disk the answers also decide whether the node may help to
found a cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from chronik.clock import Clock
from chronik.config import Peer, first_voters
from chronik.controller.membership import CHANGE_SECONDS, JOIN, Admissions, JoinAnswer, JoinRequest, are_strangers
from chronik.errors import ConfigError
from chronik.node.addresses import Addresses
from chronik.node.data_folder import DataFolder
from chronik.node.founding import Founding, Gate
from chronik.peers.calls import CallRefused, CallTimedOut, PeerUnavailable
from chronik.quorum.driver import RaftDriver
from chronik.raft.membership import NOBODY

logger = logging.getLogger("chronik.node")

LOOK_SECONDS: Final = 0.25
"""How often a node looks whether it has a leader: a fraction of the shortest election, so that founding need not wait
for it."""

UNEXPECTED_SECONDS: Final = 2.0
"""How often a node asks that was told that it does not belong to the cluster."""

ASK_SECONDS: Final = CHANGE_SECONDS + 1.0
"""The leader may need all of its time to change the membership."""


class MembershipJob:
    def __init__(
        self,
        driver: RaftDriver,
        gate: Gate,
        admissions: Admissions,
        clock: Clock,
        folder: DataFolder,
        addresses: Addresses,
        peers: Sequence[Peer],
    ) -> None:
        """`peers` are those that found the cluster, if there is none."""
        self._driver = driver
        self._gate = gate
        self._admissions = admissions
        self._clock = clock
        self._folder = folder
        self._addresses = addresses
        self._peers = peers
        self._is_told_of_others = False
        self._is_unexpected = False

    async def run(self) -> None:
        node_ids = [peer.id for peer in self._peers]
        founding = Founding(self._driver.node_id, node_ids, first_voters(self._peers), self._clock.monotonic())
        while True:
            self._addresses.refresh()
            if self._driver.leader == NOBODY:
                await self._ask_all(founding)
                self._judge(founding)
            elif self._addresses.has_moved:
                await self._tell_where()
            await asyncio.sleep(UNEXPECTED_SECONDS if self._is_unexpected else LOOK_SECONDS)

    async def _tell_where(self) -> None:
        if self._driver.leader == self._driver.node_id:
            await self._admissions.note_move(self._driver.node_id, *self._addresses.own)
        else:
            await self._ask(self._driver.leader)

    async def _ask_all(self, founding: Founding) -> None:
        others = [node_id for node_id in self._driver.transport.addresses if node_id != self._driver.node_id]
        answers = [answer for answer in await asyncio.gather(*map(self._ask, others)) if answer is not None]
        for node_id, answer in answers:
            founding.answered(node_id, answer.knows_cluster)
        self._note_whether_expected([answer for _, answer in answers])

    async def _ask(self, node_id: int) -> tuple[int, JoinAnswer] | None:
        request = JoinRequest(self._folder.directory_id, self._folder.cluster_id or "", *self._addresses.own)
        try:
            answer = await JOIN.ask(self._driver.transport.calls, node_id, request, ASK_SECONDS)
        except (PeerUnavailable, CallTimedOut, CallRefused):
            return None
        if are_strangers(request.cluster_id, answer.cluster_id):
            self._met_stranger(node_id, answer)
            return None
        self._addresses.learn(answer.nodes)
        return node_id, answer

    def _met_stranger(self, node_id: int, answer: JoinAnswer) -> None:
        """Raises ConfigError when it leads a cluster: there this folder is the one that is wrong."""
        told = f"this data folder belongs to cluster {self._folder.cluster_id}, node {node_id} to {answer.cluster_id}"
        if answer.leads:
            raise ConfigError(f"{told}, which it leads: give this node its own data folder, or its own [[peers]]")
        if not self._is_told_of_others:
            logger.error("%s: they will not work together", told)
        self._is_told_of_others = True

    def _note_whether_expected(self, answers: Sequence[JoinAnswer]) -> None:
        """Believes the leader alone: others may not have heard yet."""
        told = [answer for answer in answers if answer.leads]
        is_unexpected = any(not answer.is_expected for answer in told)
        if is_unexpected and not self._is_unexpected:
            logger.warning(
                "node %d does not belong to cluster %s, or was removed from it: chronik cluster add-node %d --raft %s "
                "lets it in",
                self._driver.node_id,
                told[0].cluster_id,
                self._driver.node_id,
                self._addresses.own,
            )
        if told:
            self._is_unexpected = is_unexpected

    def _judge(self, founding: Founding) -> None:
        """A node that holds a log has nothing to found: its votes are asked for by members, who know its disk."""
        if self._admissions.holds_log:
            self._gate.may_found = False
            return
        may_found = founding.is_allowed(self._clock.monotonic())
        if founding.is_forbidden and not self._admissions.has_heard_of_cluster:
            logger.warning("this disk is empty, and there is a cluster: waiting to be let in")
        elif may_found and not self._gate.may_found and founding.silent:
            logger.warning(
                "nodes %s are silent: a cluster may be founded without them. If they hold one already, stop this node",
                founding.silent,
            )
        self._admissions.has_heard_of_cluster = founding.is_forbidden
        self._gate.may_found = may_found
