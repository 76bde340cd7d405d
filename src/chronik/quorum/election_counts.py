"""Counters of the elections that a node observes."""

from __future__ import annotations

import msgspec

from chronik.raft.events import RaftStatus
from chronik.raft.membership import NO_NODE
from chronik.raft.roles import Role


class ElectionCounts(msgspec.Struct):
    """Counters of a node's candidacies, won elections and observed leader changes."""

    candidacies: int = 0
    elections_won: int = 0
    leader_changes: int = 0
    """Number of times that a different leader was observed, including the first one."""
    last_status: RaftStatus | None = None
    leader: int | None = None

    def record(self, status: RaftStatus) -> None:
        """Update the counters after a change of role, term or leader."""
        previous = self.last_status
        is_new = previous is None or (previous.role, previous.term) != (status.role, status.term)
        self.candidacies += is_new and status.role is Role.CANDIDATE
        self.elections_won += is_new and status.role is Role.LEADER
        if status.leader != NO_NODE and status.leader != self.leader:
            self.leader = status.leader
            self.leader_changes += 1
        self.last_status = status
