"""What happens to a group (events in), and what it wants done (instructions out).

Every event carries the time, so that the group itself has no clock: milliseconds that never go back.
A `waiter` is a number that the driver chose; the group hands it back with the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from chronik.groups.requests import (
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeaveResult,
    SyncRequest,
    SyncResult,
)
from chronik.metadata.commands import GroupMember
from chronik.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class JoinAsked:
    now_ms: int
    waiter: int
    request: JoinRequest
    unique: str
    """Random text for a member id, should one be needed: the group makes no random numbers."""


@dataclass(frozen=True, slots=True)
class SyncAsked:
    now_ms: int
    waiter: int
    request: SyncRequest


@dataclass(frozen=True, slots=True)
class HeartbeatAsked:
    now_ms: int
    waiter: int
    request: HeartbeatRequest


@dataclass(frozen=True, slots=True)
class LeaveAsked:
    now_ms: int
    waiter: int
    request: LeaveRequest


@dataclass(frozen=True, slots=True)
class CommitAsked:
    """May this member commit offsets now? The offsets themselves are none of the group's business."""

    now_ms: int
    waiter: int
    generation: int
    member_id: str
    group_instance_id: str | None


@dataclass(frozen=True, slots=True)
class DeletionAsked:
    now_ms: int
    waiter: int


@dataclass(frozen=True, slots=True)
class TimePassed:
    now_ms: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The command of that `Store` or `StoreDeletion` is applied."""

    now_ms: int
    ticket: int


@dataclass(frozen=True, slots=True)
class StoreFailed:
    now_ms: int
    ticket: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class OffsetsStored:
    """Offsets of this group were committed: the group exists from now on, with or without members."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Expired:
    """The store has dropped the group, which had neither members nor offsets left."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class TakenOver:
    """This node stops serving the group; what is stored stays."""

    now_ms: int


Event = (
    JoinAsked
    | SyncAsked
    | HeartbeatAsked
    | LeaveAsked
    | CommitAsked
    | DeletionAsked
    | TimePassed
    | Stored
    | StoreFailed
    | OffsetsStored
    | Expired
    | TakenOver
)


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """What has to survive this process: enough to go on with the same generation elsewhere."""

    group_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class Store:
    ticket: int
    group: StoredGroup


@dataclass(frozen=True, slots=True)
class StoreDeletion:
    ticket: int


Answer = JoinResult | SyncResult | LeaveResult | ErrorCode


@dataclass(frozen=True, slots=True)
class Reply:
    waiter: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Forget:
    """The group is dead: drop it from memory."""


Instruction = Store | StoreDeletion | Reply | Forget
