"""The Raft simulation with a controller on its leader, which reconciles the membership with nodes recorded in the log.

A simulated operator constantly changes the intended membership: nodes are added, promoted, demoted, drained, removed
and added again. Removed nodes continue to send messages. After the faults stop, the actual membership must match the
intended one, and no step may violate the rules of `reconciliation`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from chronik.controller.reconciliation import MembershipView, TransferLeader, select_next_step
from chronik.metadata.records import NodeRecord
from chronik.raft.events import ChangeMembership, MessageReceived, Propose, RaftEvent, Ready, TransferLeadership
from chronik.raft.membership import UNBOUND_DIRECTORY, AddLearner, DemoteVoter, Membership, PromoteLearner, RemoveMember
from chronik.raft.messages import AnyRaftMessage
from chronik.raft.roles import Role
from tests.raft.checker import require
from tests.raft.simulation import FAULTY_MS, RaftSimulation, SimulatedHost

CHECK_MS: Final = 150.0
"""Interval at which a leader checks for the next step."""
ACTIVE_MS: Final = 1_000.0
NODES_MAX: Final = 8
VOTERS_KEPT: Final = 3
LETTERS: Final = {"V": (True, False), "o": (False, False), "D": (True, True), "d": (False, True)}
"""(is voter, is drained) for each letter."""


class RaftMembershipSimulation(RaftSimulation):
    """A Raft simulation with membership reconciliation."""

    def __init__(self, seed: int) -> None:
        self.heard_at: dict[tuple[int, int], float] = {}
        self.added = 0
        self.promoted = 0
        self.demoted = 0
        self.removed = 0
        self.handed_over = 0
        self.said_at = self.lost_at = -ACTIVE_MS
        super().__init__(seed)
        voters = self.hosts[1].bootstrap.voters
        self.founders = dict.fromkeys(voters, "V")

    def _create_hosts(self) -> None:
        super()._create_hosts()
        for node_id in range(len(self.hosts) + 1, NODES_MAX + 1):
            tick_ms = 100.0 * self.random.uniform(0.8, 1.25)
            self.hosts[node_id] = SimulatedHost(node_id, self._directory(), Membership(), tick_ms)

    # -- intended membership, as applied by each node

    def nodes_of(self, host: SimulatedHost) -> dict[int, NodeRecord]:
        letters = dict(self.founders)
        for command in host.machine.commands:
            if command.startswith(b"node "):
                _, node_id, letter = command.decode().split()[:3]
                changed = letters | {int(node_id): letter}
                if letter == "-":
                    del changed[int(node_id)]
                if any(LETTERS[each][0] for each in changed.values()):  # as in the image, at least one voter remains
                    letters = changed
        return {node_id: NodeRecord(node_id, f"h{node_id}", 1, *LETTERS[letter]) for node_id, letter in letters.items()}

    def _operator(self) -> None:
        """Change the intended membership while faults are injected."""
        if self.is_calm:
            return
        self._later(self.random.expovariate(1 / 600), self._operator)
        if self.now_ms - self.lost_at <= ACTIVE_MS:
            return
        self.said_at = self.now_ms
        host = self._leader()
        if host is None or host.node is None or host.is_paused:
            return
        context = self._context()
        letter = self.random.choice("VVVVVooDd--")
        command = f"node {self.random.choice(list(self.hosts))} {letter} {context}".encode()
        self.checker.on_request(host, context)
        self._handle(host, Propose((command,), context))

    def _wipe(self, host: SimulatedHost) -> None:
        """Replace a disk only while three voters are intended, and change nothing else for a moment.

        A cluster of two voters does not survive the loss of a disk, and the loss may happen just before a demotion.
        """
        voters = [sum(node.voter for node in self.nodes_of(each).values()) for each in self.hosts.values() if each.node]
        if min(voters, default=0) < VOTERS_KEPT or self.now_ms - self.said_at <= ACTIVE_MS:
            return
        before = host.directory_id
        super()._wipe(host)
        if host.directory_id != before:
            self.lost_at = self.now_ms

    # -- the controller of a leader

    def run(self) -> None:
        for host in self.hosts.values():
            self._later(self.random.uniform(0, CHECK_MS), partial(self._check, host))
        super().run()

    def _check(self, host: SimulatedHost) -> None:
        self._later(CHECK_MS * self.random.uniform(0.8, 1.2), partial(self._check, host))
        if host.node is None or host.is_paused or host.node.status.role is not Role.LEADER:
            return
        joining = self._next_admission(host) if self.random.random() < 0.5 else None
        event = joining or self._next(host)
        if event is not None:
            self.checker.on_request(host, event.context)
            self._handle(host, event)

    def _next_admission(self, leader: SimulatedHost) -> ChangeMembership | None:
        """Return the admission of a node that is not a member or has another directory."""
        assert leader.node is not None
        for node_id in self.nodes_of(leader):
            asking, known = self.hosts[node_id], leader.node.membership.get(node_id)
            is_cut = (node_id, leader.node_id) in self.broken_links or (leader.node_id, node_id) in self.broken_links
            if asking.node is None or asking.is_paused or is_cut:
                continue
            if known is None or known.directory_id not in (UNBOUND_DIRECTORY, asking.directory_id):
                self.added += 1
                return ChangeMembership(AddLearner(node_id, asking.directory_id), self._context())
        return None

    def _next(self, leader: SimulatedHost) -> ChangeMembership | TransferLeadership | None:
        assert leader.node is not None
        seen = self._seen(leader)
        step = select_next_step(seen)
        match step:
            case None:
                return None
            case TransferLeader(successor):
                self.handed_over += 1
                return TransferLeadership(successor, self._context())
            case PromoteLearner():
                self.promoted += 1
            case DemoteVoter() | RemoveMember():
                self._check_demotion(seen, step.node_id)
                if isinstance(step, DemoteVoter):
                    self.demoted += 1
                else:
                    self.removed += 1
        return ChangeMembership(step, self._context())

    def _check_demotion(self, seen: MembershipView, node_id: int) -> None:
        if node_id in seen.voters:
            remaining, meant = len(seen.voters) - 1, len(seen.intended_voters)
            require(remaining >= min(VOTERS_KEPT, meant), f"{remaining} voters would remain of {meant} intended ones")
            require(node_id != seen.leader, "a leader demotes or removes itself")

    def _seen(self, leader: SimulatedHost) -> MembershipView:
        assert leader.node is not None
        node = leader.node
        heard = {
            other
            for (by, other), at in self.heard_at.items()
            if by == leader.node_id and self.now_ms - at <= ACTIVE_MS and node.membership.get(other) is not None
        }
        nodes = self.nodes_of(leader)
        return MembershipView(
            leader.node_id,
            nodes,
            node.membership,
            node.membership_index,
            node.match_indexes(),
            {leader.node_id, *heard, *(each for each in nodes if self._is_connected(leader, each))},
        )

    def _is_connected(self, leader: SimulatedHost, node_id: int) -> bool:
        assert leader.node is not None
        is_member = leader.node.membership.get(node_id) is not None
        return not is_member and self.hosts[node_id].node is not None and not self.hosts[node_id].is_paused

    def _handle(self, host: SimulatedHost, *events: RaftEvent) -> None:
        for event in events:
            if (
                isinstance(event, MessageReceived)
                and not host.is_paused
                and self._is_from_its_disk(host, event.message)
            ):
                self.heard_at[host.node_id, event.message.source] = self.now_ms
        super()._handle(host, *events)

    def _is_from_its_disk(self, host: SimulatedHost, message: AnyRaftMessage) -> bool:
        """Return whether the message is from the member's directory, as in the driver's peer activity."""
        member = host.node.membership.get(message.source) if host.node is not None else None
        return member is not None and member.directory_id in (UNBOUND_DIRECTORY, message.source_directory)

    def _execute(self, host: SimulatedHost, ready: Ready) -> None:
        if ready.status is not None:  # messages received as a follower do not count for a leader
            for key in [key for key in self.heard_at if key[0] == host.node_id]:
                del self.heard_at[key]
        super()._execute(host, ready)

    # -- end of the run

    def _has_converged(self) -> bool:
        leader = self._leader()
        if leader is None or leader.node is None or self.now_ms < FAULTY_MS + 3_000:
            return False
        nodes, membership = self.nodes_of(leader), leader.node.membership
        if {member.node_id: member.is_voter for member in membership.members} != {
            node.id: node.voter for node in nodes.values()
        }:
            return False
        if nodes[leader.node_id].draining and any(node.voter and not node.draining for node in nodes.values()):
            return False
        if any(self.hosts[member.node_id].directory_id != member.directory_id for member in membership.members):
            return False
        commit = leader.node.commit
        if commit < leader.node.last_index - 15 or leader.node.term_at(commit) != leader.node.status.term:
            return False
        return all(self.hosts[member.node_id].machine.applied >= commit for member in membership.members)

    def counts(self) -> str:
        return (
            f"{self.added} added, {self.promoted} promoted, {self.demoted} demoted, {self.removed} removed, "
            f"{self.handed_over} transfers"
        )
