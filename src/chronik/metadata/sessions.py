"""Exactly once: the results of commands that a node may still send again.

A node that does not hear what became of its command sends it again, perhaps to another leader. Its id (node,
incarnation, sequence) is then found here and the first result is given again. With each command a node says up to
which sequence it has been answered; those results are dropped.

An incarnation is one life (run) of a node. The first command of a new life ends the one before. If that command was so
long under way that its own life is over and the next has begun, it ends the next one. A living node that is told so
begins yet another: what it had under way is refused from then on, so nothing is applied twice or after it was given up.
"""

from __future__ import annotations

from typing import Final

import msgspec

from chronik.metadata.records import Record, Result
from chronik.protocol.errors import ErrorCode

RESULTS_KEPT_MAX: Final = 4096
"""Results kept per node. A node has at most this many unanswered commands under way."""

INCARNATIONS_REMEMBERED_MAX: Final = 16
"""How many earlier lives of a node are kept, whose late commands are told apart from those of a new life."""


class Session(msgspec.Struct):
    """`results` holds those above `floor`, by sequence; `past` are the lives before `incarnation`, the latest first."""

    node_id: int
    incarnation: bytes
    floor: int = 0
    past: tuple[bytes, ...] = ()
    results: dict[int, Result] = msgspec.field(default_factory=dict)


class SessionRecord(Record, frozen=True):
    """A session in a snapshot."""

    node_id: int
    incarnation: bytes
    floor: int
    past: tuple[bytes, ...]
    results: tuple[tuple[int, Result], ...]

    @classmethod
    def of(cls, session: Session) -> SessionRecord:
        results = tuple(sorted(session.results.items()))
        return cls(session.node_id, session.incarnation, session.floor, session.past, results)


OUTCOME_FORGOTTEN: Final = Result(
    ErrorCode.REQUEST_TIMED_OUT, "the command was sent again after its result had been dropped: its outcome is unknown"
)
EARLIER_LIFE: Final = Result(ErrorCode.STALE_BROKER_EPOCH, "the command comes from an earlier life of its node")


LIFE_ENDED: Final = Result(
    ErrorCode.REQUEST_TIMED_OUT, "another life of this node came between: the outcome of the command is unknown"
)
"""What a node tells those who wait for its commands when it hears that its life is over."""


def is_over(session: Session | None, incarnation: bytes) -> bool:
    return session is not None and session.incarnation != incarnation and incarnation in session.past


def answer_known(session: Session | None, incarnation: bytes, sequence: int) -> Result | None:
    """Returns what to answer without applying the command; None when it has to be applied."""
    if session is None:
        return None
    if incarnation != session.incarnation:
        return EARLIER_LIFE if is_over(session, incarnation) else None
    known = session.results.get(sequence)
    if known is not None:
        return known
    return OUTCOME_FORGOTTEN if sequence <= session.floor else None
