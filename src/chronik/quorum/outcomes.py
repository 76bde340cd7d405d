"""Outcomes of proposals, reads and membership changes, as results and exceptions."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from chronik.errors import ChronikError
from chronik.raft.events import RejectionReason
from chronik.raft.membership import NO_NODE


class CompletionPoint(IntEnum):
    """The event that completes a proposal. The values are sent between nodes and must never change."""

    APPLIED = 0
    """Committed by a majority and applied on the responding node."""
    WRITTEN_BY_LEADER = 1
    """Written to the leader's disk. The command is lost if that disk fails before it is replicated to a majority."""


class CommittedPosition(msgspec.Struct, frozen=True, array_like=True):
    """The log position of a command that has reached the requested completion point."""

    index: int
    term: int


class NotLeader(ChronikError):
    """The node is not the leader, and the command is not committed. `leader` is the current leader or NO_NODE."""

    def __init__(self, leader: int) -> None:
        super().__init__(f"not the leader; node {leader} is" if leader != NO_NODE else "no leader is known")
        self.leader = leader


class ProposalRejected(ChronikError):
    """The leader rejected the command. It will never be committed."""

    def __init__(self, refusal: RejectionReason) -> None:
        super().__init__(refusal.message)
        self.reason = refusal


class ProposalLost(ChronikError):
    """Another leader committed a different entry at the command's index. The command will never be committed."""


class OutcomeUnknown(ChronikError):
    """The outcome of the command is unknown. It may be committed now, later or never."""


class ReadTimedOut(ChronikError):
    """No leader confirmed the read before its deadline."""


class DriverStopped(ChronikError):
    """The node is shutting down and accepts no more requests."""
