"""Background job that requests admission from the peers while the node has no leader, and bootstraps a cluster.

The leader does not contact a node whose disk was replaced (it expects the old directory id) or that it does not know,
so such a node must request admission. On an empty disk, the responses also decide whether the node may bootstrap a
cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Final

from chronik.clock import Clock
from chronik.config import PeerConfig, initial_voters
from chronik.controller.membership import (
    CHANGE_SECONDS,
    JOIN,
    AdmissionRequest,
    AdmissionResponse,
    NodeAdmission,
    are_different_clusters,
)
from chronik.errors import ConfigError
from chronik.node.data_directory import DataDirectory
from chronik.node.peer_addresses import PeerAddresses
from chronik.peers.calls import CallRejected, CallTimedOut, PeerUnavailable
from chronik.quorum.driver import RaftDriver
from chronik.raft import rules
from chronik.raft.membership import NO_NODE, UNBOUND_DIRECTORY
from chronik.raft.messages import AnyRaftMessage, VoteRequest

logger = logging.getLogger("chronik.node")

BOOTSTRAP_WAIT_SECONDS: Final = 5.0
"""The time in seconds that nodes with empty disks wait for all nodes before a majority may bootstrap the cluster.

A node that starts concurrently and must recover its log responds within this time.
"""

CHECK_SECONDS: Final = 0.25
"""The interval in seconds at which a node checks whether the cluster has a leader.

It is a fraction of the minimum election timeout, so that the checks do not delay the bootstrap.
"""

UNEXPECTED_SECONDS: Final = 2.0
"""The interval in seconds between join requests of a node that the cluster has not admitted."""

JOIN_TIMEOUT_SECONDS: Final = CHANGE_SECONDS + 1.0
"""The timeout of a node's join request in seconds, longer than the leader's timeout for membership changes."""


class ClusterBootstrap:
    """The logic that decides whether a node may bootstrap a new cluster. It performs no I/O.

    Only nodes with empty disks may bootstrap a cluster, and only if none of the nodes that respond knows an existing
    one.

    Raft counts votes of unknown disks only before the first log entry. A replaced empty disk looks like a new one, so
    two nodes with replaced disks could elect a leader although their cluster still exists. The vote requests of that
    first election pass through a `BootstrapGate`; all other messages are unaffected. To Raft, a closed gate is a
    network that loses messages, which is always safe.
    """

    def __init__(self, node_id: int, nodes: Collection[int], voters: Collection[int], began: float) -> None:
        """Create the decision logic; `voters` are the nodes that elect the first leader."""
        self._nodes = frozenset(nodes)
        self._voters = frozenset(voters)
        self._empty = {node_id}
        self._began = began
        self.is_forbidden = False

    def record_response(self, node_id: int, knows_cluster: bool) -> None:
        """Record that a peer has responded. If the peer already belongs to a cluster, bootstrapping is forbidden."""
        if knows_cluster:
            self.is_forbidden = True
        else:
            self._empty.add(node_id)

    def may_bootstrap(self, now: float) -> bool:
        """Return whether the node may bootstrap the cluster: all nodes, or after a wait a majority, have responded."""
        if self.is_forbidden:
            return False
        has_waited = now - self._began >= BOOTSTRAP_WAIT_SECONDS
        return not self.missing_nodes or (has_waited and rules.has_quorum(self._empty, self._voters))

    @property
    def missing_nodes(self) -> list[int]:
        """Return the ids of the nodes that have not responded."""
        return sorted(self._nodes - self._empty)


class BootstrapGate:
    """A filter of Raft messages that drops the first election's vote requests until a bootstrap is allowed."""

    is_open = False

    def allows_message(self, message: AnyRaftMessage) -> bool:
        """Return whether the gate lets the Raft message pass in either direction."""
        return self.is_open or not is_bootstrap_vote(message)


class MembershipJob:
    """The background job by which a node joins its cluster, reports its address and takes part in the bootstrap."""

    def __init__(
        self,
        driver: RaftDriver,
        gate: BootstrapGate,
        admissions: NodeAdmission,
        clock: Clock,
        folder: DataDirectory,
        addresses: PeerAddresses,
        peers: Sequence[PeerConfig],
    ) -> None:
        """Create the job; `peers` are the nodes that bootstrap the cluster if none exists."""
        self._driver = driver
        self._gate = gate
        self._admissions = admissions
        self._clock = clock
        self._folder = folder
        self._addresses = addresses
        self._peers = peers
        self._has_logged_other_cluster = False
        self._is_unexpected = False

    async def run(self) -> None:
        node_ids = [peer.id for peer in self._peers]
        founding = ClusterBootstrap(
            self._driver.node_id, node_ids, initial_voters(self._peers), self._clock.monotonic()
        )
        while True:
            self._addresses.refresh()
            if self._driver.leader == NO_NODE:
                await self._query_all_nodes(founding)
                self._update_bootstrap_gate(founding)
            elif self._addresses.has_moved:
                await self._report_address()
            await asyncio.sleep(UNEXPECTED_SECONDS if self._is_unexpected else CHECK_SECONDS)

    async def _report_address(self) -> None:
        if self._driver.leader == self._driver.node_id:
            await self._admissions.record_address(self._driver.node_id, *self._addresses.own)
        else:
            await self._ask(self._driver.leader)

    async def _query_all_nodes(self, founding: ClusterBootstrap) -> None:
        others = [node_id for node_id in self._driver.transport.addresses if node_id != self._driver.node_id]
        answers = [answer for answer in await asyncio.gather(*map(self._ask, others)) if answer is not None]
        for node_id, answer in answers:
            founding.record_response(node_id, answer.knows_cluster)
        self._warn_if_not_admitted([answer for _, answer in answers])

    async def _ask(self, node_id: int) -> tuple[int, AdmissionResponse] | None:
        request = AdmissionRequest(self._folder.directory_id, self._folder.cluster_id or "", *self._addresses.own)
        try:
            answer = await JOIN.call(self._driver.transport.calls, node_id, request, JOIN_TIMEOUT_SECONDS)
        except (PeerUnavailable, CallTimedOut, CallRejected):
            return None
        if are_different_clusters(request.cluster_id, answer.cluster_id):
            self._handle_peer_of_other_cluster(node_id, answer)
            return None
        self._addresses.learn(answer.nodes)
        return node_id, answer

    def _handle_peer_of_other_cluster(self, node_id: int, answer: AdmissionResponse) -> None:
        """Log an error because a peer belongs to another cluster.

        Raises:
            ConfigError: The peer leads that cluster, so this node's data directory or peers must be wrong.
        """
        message = (
            f"this data directory belongs to cluster {self._folder.cluster_id}, "
            f"but node {node_id} to cluster {answer.cluster_id}"
        )
        if answer.is_leader:
            raise ConfigError(f"{message}, which it leads: use another data directory or other [[peers]] for this node")
        if not self._has_logged_other_cluster:
            logger.error("peer belongs to another cluster: %s; ignoring the peer", message)
        self._has_logged_other_cluster = True

    def _warn_if_not_admitted(self, answers: Sequence[AdmissionResponse]) -> None:
        """Log a warning if the Raft leader responds that this node is not a member of the cluster."""
        leader_answers = [answer for answer in answers if answer.is_leader]
        is_unexpected = any(not answer.is_expected for answer in leader_answers)
        if is_unexpected and not self._is_unexpected:
            logger.warning(
                "node %d does not belong to cluster %s, or was removed from it: run chronik cluster add-node %d --raft "
                "%s to add it",
                self._driver.node_id,
                leader_answers[0].cluster_id,
                self._driver.node_id,
                self._addresses.own,
            )
        if leader_answers:
            self._is_unexpected = is_unexpected

    def _update_bootstrap_gate(self, founding: ClusterBootstrap) -> None:
        """Open the bootstrap gate if this node may bootstrap the cluster, otherwise close it."""
        if self._admissions.has_log:
            self._gate.is_open = False
            return
        may_found = founding.may_bootstrap(self._clock.monotonic())
        if founding.is_forbidden and not self._admissions.has_seen_cluster:
            logger.warning("data directory is empty, but a cluster exists; waiting for admission by its leader")
        elif may_found and not self._gate.is_open and founding.missing_nodes:
            logger.warning(
                "nodes %s do not respond: a cluster may be bootstrapped without them; stop this node if they have one",
                founding.missing_nodes,
            )
        self._admissions.has_seen_cluster = founding.is_forbidden
        self._gate.is_open = may_found


def is_bootstrap_vote(message: AnyRaftMessage) -> bool:
    """Return whether the Raft message is a vote request of the first election, in which directory ids are unknown."""
    return isinstance(message, VoteRequest) and message.target_directory == UNBOUND_DIRECTORY
