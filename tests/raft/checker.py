"""A checker of Raft's safety properties at every step of a simulation.

Election safety, leader append-only, log matching, leader completeness and state machine safety (figure 3 of the paper).
In addition: terms never decrease, committed entries are durable on a majority and never lost, equal applied indexes
mean equal states, reads are linearizable, and every request has an outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronik.raft.entries import EntryKind, RaftEntry
from chronik.raft.events import ReadIndexConfirmed, Ready, RequestAccepted, RequestRejected
from chronik.raft.membership import UNBOUND_DIRECTORY, Membership, decode_membership
from chronik.raft.roles import Role

if TYPE_CHECKING:
    from tests.raft.simulation import SimulatedHost


class Violation(AssertionError):
    """A safety property is violated."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise Violation(message)


class RaftChecker:
    """The checker of a simulated cluster."""

    def __init__(self, hosts: dict[int, SimulatedHost]) -> None:
        self._hosts = hosts
        self._leaders: dict[int, int] = {}
        self._entries: dict[tuple[int, int], tuple[int, RaftEntry]] = {}
        self._committed: dict[int, int] = {}
        """Term of each index that any leader has committed."""
        self.last_committed = 0
        self._digests: dict[int, bytes] = {}
        self._terms: dict[int, int] = {}
        self._seen_commit: dict[int, int] = {}
        self._leading: tuple[int, int, int | None] | None = None
        self._reads: dict[int, int] = {}
        self._awaited: dict[int, set[int]] = {}
        self.awaited_commands: dict[tuple[int, int], bytes] = {}
        self.membership: Membership | None = None
        """Last committed membership."""
        self.reads_confirmed = 0
        self.snapshots_installed = 0
        self.memberships_committed = 0

    @property
    def terms_led(self) -> int:
        return len(self._leaders)

    def summary(self) -> str:
        return (
            f"{self.terms_led} leaders, {self.last_committed} committed, "
            f"{self.memberships_committed} memberships, {self.snapshots_installed} snapshots installed, "
            f"{self.reads_confirmed} reads"
        )

    # ----------------------------------------------------------------------------------------------- crash and restart

    def on_started(self, host: SimulatedHost) -> None:
        node = host.node
        assert node is not None
        require(
            node.status.term >= host.disk.hard_state.term and node.commit >= host.disk.hard_state.commit,
            f"{host.node_id} has lost its hard state",
        )
        self._terms[host.node_id] = node.status.term
        self._seen_commit[host.node_id] = 0
        self._awaited[host.node_id] = set()

    def on_crashed(self, host: SimulatedHost) -> None:
        self._awaited[host.node_id] = set()

    def may_lose_disk(self, host: SimulatedHost) -> bool:
        """Return whether the host's disk may be lost.

        All committed entries must remain on a majority of the voters, and the other nodes must know the cluster: two
        empty disks could bootstrap another cluster.
        """
        if self.membership is None or host.node_id not in self.membership.voters or len(self.membership.voters) < 3:
            return False
        for member in self.membership.members:
            other = self._hosts[member.node_id]
            if member.directory_id != other.directory_id or other.disk.last_index == 0:
                return False
            if other.node is None or other.node.membership_index == 0:
                return False
            if other.node.membership != self.membership:
                return False  # not during a membership change
        founders = host.bootstrap.voters
        return all(self._hosts[node_id].disk.last_index > 0 for node_id in founders)

    # ---------------------------------------------------------------------------------------------------------- steps

    def before(self, host: SimulatedHost) -> None:
        node = host.node
        assert node is not None
        self._leading = None
        if node.status.role is Role.LEADER:
            self._leading = (node.status.term, node.last_index, node.term_at(node.last_index))

    def after(self, host: SimulatedHost, ready: Ready) -> None:
        node = host.node
        assert node is not None
        status = node.status
        known_term = self._terms[host.node_id]
        require(status.term >= known_term, f"term of {host.node_id} decreases from {known_term} to {status.term}")
        self._terms[host.node_id] = status.term
        if status.role is Role.LEADER:
            self._check_leader(host)
        if ready.persist is not None:
            for entry in ready.persist.entries:
                self._check_entry(host, entry)
        if node.commit > self._seen_commit[host.node_id]:
            self._check_commit(host)
        for message in ready.messages:
            require(message.term <= status.term, "message has a future term")

    def _check_leader(self, host: SimulatedHost) -> None:
        node = host.node
        assert node is not None
        term = node.status.term
        leader = self._leaders.setdefault(term, host.node_id)
        require(leader == host.node_id, f"election safety: {leader} and {host.node_id} both lead term {term}")
        known = host.disk.hard_state
        require((known.term, known.vote) == (term, host.node_id), f"{host.node_id} leads without a durable vote")
        if self._leading is not None and self._leading[0] == term:
            _, last_index, last_term = self._leading
            is_kept = node.last_index >= last_index and node.term_at(last_index) in (last_term, None)
            require(is_kept, f"leader append-only: {host.node_id} has truncated its own log")
        elif self.last_committed:
            index, committed_term = self.last_committed, self._committed[self.last_committed]
            holds = node.term_at(index) == committed_term or node.first_index > index
            is_older = term < committed_term  # a paused leader of an older term, which cannot commit anything
            require(holds or is_older, f"leader completeness: {host.node_id} leads term {term} without entry {index}")

    def _check_entry(self, host: SimulatedHost, entry: RaftEntry) -> None:
        node = host.node
        assert node is not None
        previous_term = node.term_at(entry.index - 1)
        if previous_term is None:
            return
        known = self._entries.setdefault((entry.index, entry.term), (previous_term, entry))
        require(known == (previous_term, entry), f"log matching: {entry} and {known} have the same index and term")

    def _check_commit(self, host: SimulatedHost) -> None:
        node = host.node
        assert node is not None
        has_led = self._leading is not None and self._leading[0] == node.status.term  # may step down with the commit
        first = max(self._seen_commit[host.node_id] + 1, node.first_index)
        self._seen_commit[host.node_id] = node.commit
        for index in range(first, node.commit + 1):
            term = node.term_at(index)
            assert term is not None
            if index not in self._committed:
                require(has_led, f"{host.node_id} has committed {index}, but no leader has")
                self._commit(host, index, term)
            require(
                self._committed[index] == term,
                f"state machine safety: {index} is committed in terms {term} and {self._committed[index]}",
            )
        if has_led:
            self._check_durable(host, node.commit)

    def _commit(self, host: SimulatedHost, index: int, term: int) -> None:
        self._committed[index] = term
        self.last_committed = max(self.last_committed, index)
        known = self._entries.get((index, term))
        if known is not None and known[1].kind is EntryKind.MEMBERSHIP:
            self.membership = decode_membership(known[1].data)
            self.memberships_committed += 1

    def _check_durable(self, host: SimulatedHost, index: int) -> None:
        """Check that the entry is on the disks of a majority of the voters."""
        node = host.node
        assert node is not None
        term = node.term_at(index)
        if term is None or term != node.status.term:
            require(term is None, f"{host.node_id} has committed an entry of term {term} in term {node.status.term}")
            return
        voters = [member for member in node.membership.members if member.is_voter]
        holders = [
            member.node_id
            for member in voters
            if self._hosts[member.node_id].directory_id == member.directory_id
            and self._hosts[member.node_id].disk.holds(index, term)
        ]
        # A disk that was lost since may have had the entry. An unbound voter never counts.
        lost = [m for m in voters if m.directory_id not in (self._hosts[m.node_id].directory_id, UNBOUND_DIRECTORY)]
        enough = len(holders) + len(lost) >= quorum_size(len(voters))
        require(enough, f"{host.node_id} has committed {index}, which is only on the disks of {holders}")

    # -------------------------------------------------------------------------------------------------------- applying

    def on_applied(self, host: SimulatedHost, entry: RaftEntry | None) -> None:
        """Check an applied entry, or a restored snapshot if `entry` is None."""
        index, digest = host.machine.applied, host.machine.digest
        require(index in self._committed, f"{host.node_id} applies {index}, which is not committed")
        if entry is None:
            self.snapshots_installed += 1
        else:
            require(self._committed[index] == entry.term, f"{host.node_id} applies a different entry at {index}")
        known = self._digests.setdefault(index, digest)
        require(known == digest, f"state of {host.node_id} differs at {index}")

    # --------------------------------------------------------------------------------------------- reads and outcomes

    def on_read_requested(self, host: SimulatedHost, context: int) -> None:
        self._reads[context] = self.last_committed
        self.on_request(host, context)

    def on_request(self, host: SimulatedHost, context: int) -> None:
        self._awaited[host.node_id].add(context)

    def on_outcome(self, host: SimulatedHost, outcome: RequestAccepted | RequestRejected | ReadIndexConfirmed) -> None:
        require(outcome.context in self._awaited[host.node_id], f"{outcome} belongs to no request")
        self._awaited[host.node_id].discard(outcome.context)
        if isinstance(outcome, ReadIndexConfirmed):
            self.reads_confirmed += 1
            needed = self._reads[outcome.context]
            require(outcome.index >= needed, f"stale read at {host.node_id}: {outcome.index} instead of {needed}")

    # ------------------------------------------------------------------------------------------------- end of the run

    @property
    def has_pending_requests(self) -> bool:
        return any(self._awaited.values())

    def check_end(self, hosts: list[SimulatedHost]) -> None:
        require(bool(hosts), "no node is left")
        commands = hosts[0].machine.commands
        for (index, term), command in self.awaited_commands.items():
            if self._committed.get(index) == term:
                require(command in commands, f"{command!r} was committed at {index} and is lost")
        for node_id, waiting in self._awaited.items():
            require(not waiting, f"{len(waiting)} requests at {node_id} have no outcome")


def quorum_size(voter_count: int) -> int:
    """Return the size of a majority, independently of `rules`, which mutants change."""
    return voter_count // 2 + 1
