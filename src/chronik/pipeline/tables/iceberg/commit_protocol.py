"""Exactly-once commits of snapshots to an Iceberg catalog, as a pure state machine.

    commit = SnapshotCommit(new_snapshot_id)
    while not isinstance(action := commit.action, Committed | Abandoned):
        match action:
            case Reload():  commit.reloaded(load_table())
            case Plan():    write_manifests(action); commit.planned()
            case Send():    commit.responded(send_request(action.request))

The writer chooses the id of the snapshot, and the catalog accepts a request only if the table's main branch still is
the snapshot from which the commit was planned. After any response but success, the writer reloads the table: if it has
a snapshot with the id, the commit is done; if the main branch has moved, the commit is planned again; otherwise the
identical request is sent again.

No response except success determines the outcome. A gateway that repeats a request returns the conflict with its own
first delivery, and a request that timed out may be applied later. PyIceberg's own retry is therefore not used: it
would add the rows of such a request again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from chronik.errors import check_invariant

CONFLICTS_MAX = 100
"""Maximum number of times that a commit is planned again because of other writers."""

FAILURES_MAX = 4
"""Maximum number of failed requests of one commit, not counting conflicts."""


class Outcome(StrEnum):
    """The outcome of a commit request, as far as its response determines it."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    """The catalog has not applied the request and never will. Only a catalog without a network can tell."""
    UNKNOWN = "unknown"
    """The request may have been applied, or may yet be."""


@dataclass(frozen=True, slots=True)
class TableHead:
    """The state of a table that decides whether a catalog accepts a commit."""

    table_uuid: str
    snapshot_id: int | None
    """The snapshot of the main branch; None for a table without one."""
    schema_id: int
    snapshot_ids: frozenset[int]
    """All snapshots in the table's metadata, including those that are not on the main branch."""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """The identity and requirements of a request. Its content is fixed when it is planned, and never changes."""

    snapshot_id: int
    table_uuid: str
    parent_id: int | None
    schema_id: int

    def is_applicable(self, head: TableHead) -> bool:
        """Return whether a catalog would accept the request in this state of the table."""
        return (head.table_uuid, head.snapshot_id, head.schema_id) == (self.table_uuid, self.parent_id, self.schema_id)


@dataclass(frozen=True, slots=True)
class Reload:
    """Load the table's metadata from the catalog."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan the commit onto the loaded metadata, and write the manifests of the new snapshot."""

    request: CommitRequest


@dataclass(frozen=True, slots=True)
class Send:
    """Send the planned request. A repeated request must be identical to the first one."""

    request: CommitRequest
    is_repeated: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """The table has, or had, the snapshot."""

    snapshot_id: int


class AbandonReason(StrEnum):
    """The reason why a commit was abandoned."""

    CONFLICTS = "other writers have committed first in every attempt"
    FAILURES = "the catalog has not accepted the request"
    REPLACED = "the table was dropped and created again"


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The commit has used up its attempts. Its outcome is unknown if `SnapshotCommit.is_undecided`."""

    reason: AbandonReason


Action = Reload | Plan | Send | Committed | Abandoned


class SnapshotCommit:
    """The commit of one snapshot. `action` is the next step, and a method reports its result."""

    def __init__(
        self,
        new_snapshot_id: Callable[[], int],
        *,
        conflicts_max: int = CONFLICTS_MAX,
        failures_max: int = FAILURES_MAX,
    ) -> None:
        self.action: Action = Reload()
        self.is_undecided = False
        """Whether a request may yet be applied, so that the files it adds must not be deleted."""
        self._new_snapshot_id = new_snapshot_id
        self._conflicts_left = conflicts_max
        self._failures_left = failures_max
        self._table_uuid: str | None = None
        self._request: CommitRequest | None = None
        self._sent_ids: set[int] = set()

    def reloaded(self, head: TableHead) -> None:
        """Report the loaded metadata, which is at least as new as the last response."""
        self._check_action(Reload)
        self._table_uuid = self._table_uuid or head.table_uuid
        found = self._sent_ids & head.snapshot_ids
        if found:
            self.action = Committed(found.pop())
        elif head.table_uuid != self._table_uuid:
            self.action = Abandoned(AbandonReason.REPLACED)
        elif self._request is not None and self._request.is_applicable(head):
            self._failures_left -= 1
            is_exhausted = self._failures_left <= 0
            self.action = Abandoned(AbandonReason.FAILURES) if is_exhausted else Send(self._request, is_repeated=True)
        elif self._request is not None and self._conflicts_left <= 1:
            self.action = Abandoned(AbandonReason.CONFLICTS)
        else:
            self._conflicts_left -= self._request is not None
            # A new id for every plan: one that is found in the table identifies the committed plan.
            self._request = CommitRequest(self._new_snapshot_id(), head.table_uuid, head.snapshot_id, head.schema_id)
            self.action = Plan(self._request)

    def reload_failed(self) -> None:
        """Report that the metadata could not be loaded."""
        self._check_action(Reload)
        self._failures_left -= 1
        if self._failures_left <= 0:
            self.action = Abandoned(AbandonReason.FAILURES)

    def planned(self) -> None:
        """Report that the request is complete and that all files it refers to are durable."""
        self._check_action(Plan)
        assert self._request is not None
        self.action = Send(self._request)

    def responded(self, outcome: Outcome) -> None:
        """Report the response to the request, or that there was none."""
        self._check_action(Send)
        assert self._request is not None
        if outcome is Outcome.ACCEPTED:
            self.action = Committed(self._request.snapshot_id)
            return
        self._sent_ids.add(self._request.snapshot_id)
        self.is_undecided = self.is_undecided or outcome is Outcome.UNKNOWN
        self.action = Reload()

    def _check_action(self, expected: type[Action]) -> None:
        check_invariant(isinstance(self.action, expected), f"expected {expected.__name__}, not {self.action!r}")
