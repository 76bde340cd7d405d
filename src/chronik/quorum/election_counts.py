"""Counters of the elections that a node observes."""

from __future__ import annotations

import msgspec

from chronik.raft.events import Status
from chronik.raft.membership import NOBODY
from chronik.raft.roles import Role


class ElectionCounts(msgspec.Struct):
    """Counters of a node's candidacies, won elections and observed leader changes."""

    stood: int = 0
    won: int = 0
    leader_changes: int = 0
    """Number of times that a different leader was observed, including the first one."""
    last: Status | None = None
    leader: int | None = None

    def note(self, status: Status) -> None:
        """Update the counters after a change of role, term or leader."""
        previous = self.last
        is_new = previous is None or (previous.role, previous.term) != (status.role, status.term)
        self.stood += is_new and status.role is Role.CANDIDATE
        self.won += is_new and status.role is Role.LEADER
        if status.leader != NOBODY and status.leader != self.leader:
            self.leader = status.leader
            self.leader_changes += 1
        self.last = status
