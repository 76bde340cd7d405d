"""Exactly-once application of commands: sessions keep the results of commands that a node may retry.

A node that does not learn the outcome of its command retries it, possibly at another leader. The session finds the
command by (node, incarnation, sequence) and returns its first result. With each command, a node reports up to which
sequence its commands have completed; those results are dropped.

An incarnation is one run of a node. Its first command ends the session of the previous incarnation. A delayed first
command of an older incarnation can thus end the session of a newer one. A running node to which that happens starts
another incarnation: its pending commands are rejected from then on, so none is applied twice or after it was reported
as failed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from chronik.metadata.records import ApplyResult, ImageRecord
from chronik.protocol.errors import ErrorCode

RESULTS_KEPT_MAX: Final = 4096
"""The maximum number of command results kept per node for detecting retries, and thus of a node's pending commands."""

INCARNATIONS_REMEMBERED_MAX: Final = 16
"""The maximum number of past incarnations kept per node, so that their delayed commands are rejected."""


class CommandSession(msgspec.Struct):
    """The recent commands of a node and their results, by which a retried command is detected and not applied twice.

    `results` holds the results above `floor` by sequence; `past` are the previous incarnations, the latest first.
    """

    node_id: int
    incarnation: bytes
    floor: int = 0
    past: tuple[bytes, ...] = ()
    results: dict[int, ApplyResult] = msgspec.field(default_factory=dict)


class SessionRecord(ImageRecord, frozen=True):
    """A node's command session as it is encoded in a snapshot."""

    node_id: int
    incarnation: bytes
    floor: int
    past: tuple[bytes, ...]
    results: tuple[tuple[int, ApplyResult], ...]

    @classmethod
    def from_session(cls, session: CommandSession) -> SessionRecord:
        """Convert a command session to its snapshot record."""
        results = tuple(sorted(session.results.items()))
        return cls(session.node_id, session.incarnation, session.floor, session.past, results)


RESULT_DROPPED: Final = ApplyResult(
    ErrorCode.REQUEST_TIMED_OUT, "the command was retried after its result had been dropped: its outcome is unknown"
)
STALE_INCARNATION: Final = ApplyResult(
    ErrorCode.STALE_BROKER_EPOCH, "the command was sent by an earlier incarnation of its node"
)


INCARNATION_ENDED: Final = ApplyResult(
    ErrorCode.REQUEST_TIMED_OUT, "another incarnation of the node ended this one: the outcome of the command is unknown"
)
"""The result of a pending command whose command session was ended by another incarnation of the same node."""


def has_incarnation_ended(session: CommandSession | None, incarnation: bytes) -> bool:
    """Return whether another incarnation of the node has already replaced the given incarnation."""
    return session is not None and session.incarnation != incarnation and incarnation in session.past


def find_earlier_result(session: CommandSession | None, incarnation: bytes, sequence: int) -> ApplyResult | None:
    """Return the result of a command that was already applied or is outdated, or None if it must be applied."""
    if session is None:
        return None
    if incarnation != session.incarnation:
        return STALE_INCARNATION if has_incarnation_ended(session, incarnation) else None
    known = session.results.get(sequence)
    if known is not None:
        return known
    return RESULT_DROPPED if sequence <= session.floor else None
