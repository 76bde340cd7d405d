"""Counts elections as one node sees them."""

from __future__ import annotations

import msgspec

from chronik.raft.events import Status
from chronik.raft.membership import NOBODY
from chronik.raft.roles import Role


class ElectionCounts(msgspec.Struct):
    stood: int = 0
    won: int = 0
    leader_changes: int = 0
    """Times that another leader was known than the one before; the first counts, too."""
    last: Status | None = None
    leader: int | None = None

    def note(self, status: Status) -> None:
        """Is called whenever role, term or leader have changed."""
        before = self.last
        is_new = before is None or (before.role, before.term) != (status.role, status.term)
        self.stood += is_new and status.role is Role.CANDIDATE
        self.won += is_new and status.role is Role.LEADER
        if status.leader != NOBODY and status.leader != self.leader:
            self.leader = status.leader
            self.leader_changes += 1
        self.last = status
