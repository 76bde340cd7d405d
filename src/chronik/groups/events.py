"""Events of the group state machines: client requests and store notifications (see `coordination.machine`)."""

from __future__ import annotations

from chronik.coordination.machine import MachineEvent, MachineRequest
from chronik.groups.requests import JoinRequest, LeaveRequest, SyncRequest


class JoinRequested(MachineRequest, frozen=True):
    """A client sent JoinGroup."""

    request: JoinRequest
    random_suffix: str
    """Random suffix for a new member id. State machines are deterministic and draw no random numbers."""


class SyncRequested(MachineRequest, frozen=True):
    """A client sent SyncGroup."""

    request: SyncRequest


class LeaveRequested(MachineRequest, frozen=True):
    """A client sent LeaveGroup."""

    request: LeaveRequest


class HeartbeatRequested(MachineRequest, frozen=True):
    """A client sent Heartbeat."""

    generation: int
    member_id: str
    group_instance_id: str | None


class CommitCheckRequested(MachineRequest, frozen=True):
    """A client wants to commit offsets. The group only checks whether the client is a valid member."""

    generation: int
    member_id: str
    group_instance_id: str | None
    is_transactional: bool = False
    """Whether the offsets belong to a transaction. Older clients do not name their member id in that case."""


class DeletionRequested(MachineRequest, frozen=True):
    """An administrator sent DeleteGroups."""


class OffsetsStored(MachineEvent, frozen=True):
    """Offsets of the group were committed, which creates the group in the store even if it has no members."""
