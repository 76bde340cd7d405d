"""Outcomes of proposals, reads and membership changes, as results and exceptions."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from chronik.errors import ChronikError
from chronik.raft.events import RejectionReason
from chronik.raft.membership import NO_NODE


class CompletionPoint(IntEnum):
    """The point at which a proposal is complete. The values are part of the peer protocol and must never change."""

    APPLIED = 0
    """The command is committed by a majority and applied on the responding node."""
    WRITTEN_BY_LEADER = 1
    """The command is on the Raft leader's disk, and is lost if this disk fails before replication."""


class CommittedPosition(msgspec.Struct, frozen=True, array_like=True):
    """The index and the term of a proposed command in the Raft log."""

    index: int
    term: int


class NotLeader(ChronikError):
    """This node is not the Raft leader, and the command is not committed. `leader` is the current leader or NO_NODE."""

    def __init__(self, leader: int) -> None:
        super().__init__(f"not the leader; node {leader} is" if leader != NO_NODE else "no leader is known")
        self.leader = leader


class ProposalRejected(ChronikError):
    """The Raft leader has rejected the command, which will never be committed."""

    def __init__(self, refusal: RejectionReason) -> None:
        super().__init__(refusal.message)
        self.reason = refusal


class ProposalLost(ChronikError):
    """Another leader has committed a different entry at the command's index; the command will never be committed."""


class OutcomeUnknown(ChronikError):
    """It is unknown whether the command was committed or will be committed later."""


class ReadTimedOut(ChronikError):
    """No leader confirmed the read before its deadline."""


class DriverStopped(ChronikError):
    """The Raft driver is stopped and accepts no more requests."""
