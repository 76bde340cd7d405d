"""How a proposal, a read or a change of the cluster ends, for those who asked."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from chronik.errors import ChronikError
from chronik.raft.events import Refusal
from chronik.raft.membership import NOBODY


class Until(IntEnum):
    """What a proposal waits for. These numbers must never change: they travel between nodes."""

    APPLIED = 0
    """Committed by a majority, and applied on the node that answers."""
    ON_LEADERS_DISK = 1
    """On the leader's disk, and no more: if that disk is lost before a majority has the command, so is the command."""


class Committed(msgspec.Struct, frozen=True, array_like=True):
    """The command is committed, and applied on the node that answers, unless `Until` asked for less."""

    index: int
    term: int


class NotLeader(ChronikError):
    """The command was not and will not be committed: this node does not lead. `leader` is whom to ask, or NOBODY."""

    def __init__(self, leader: int) -> None:
        super().__init__(f"node {leader} leads" if leader != NOBODY else "no leader is known")
        self.leader = leader


class ProposalRefused(ChronikError):
    """The command was not and will not be committed: the leader did not take it."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class ProposalLost(ChronikError):
    """The command was not and will not be committed: another leader has committed something else in its place."""


class OutcomeUnknown(ChronikError):
    """The command was sent on its way and may be committed, now, later, or never."""


class ReadTimedOut(ChronikError):
    """No leader confirmed in time that the local state is fresh enough."""


class DriverStopped(ChronikError):
    """The node is shutting down: nothing more is taken."""
