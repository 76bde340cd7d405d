"""What happens to a group (events in), and what it wants done (instructions out).

Every event carries the time, so that the group itself has no clock: milliseconds that never go back.
A `waiter` is a number that the driver chose; the group hands it back with the answer.
"""

from __future__ import annotations

import msgspec

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


class JoinAsked(msgspec.Struct, frozen=True):
    now_ms: int
    waiter: int
    request: JoinRequest
    unique: str
    """Random text for a member id, should one be needed: the group makes no random numbers."""


class SyncAsked(msgspec.Struct, frozen=True):
    now_ms: int
    waiter: int
    request: SyncRequest


class HeartbeatAsked(msgspec.Struct, frozen=True):
    now_ms: int
    waiter: int
    request: HeartbeatRequest


class LeaveAsked(msgspec.Struct, frozen=True):
    now_ms: int
    waiter: int
    request: LeaveRequest


class CommitAsked(msgspec.Struct, frozen=True):
    """May this member commit offsets now? The offsets themselves are none of the group's business."""

    now_ms: int
    waiter: int
    generation: int
    member_id: str
    group_instance_id: str | None


class DeletionAsked(msgspec.Struct, frozen=True):
    now_ms: int
    waiter: int


class TimePassed(msgspec.Struct, frozen=True):
    now_ms: int


class Stored(msgspec.Struct, frozen=True):
    """The command of that `Store` or `StoreDeletion` is applied."""

    now_ms: int
    ticket: int


class StoreFailed(msgspec.Struct, frozen=True):
    now_ms: int
    ticket: int
    error: ErrorCode


class OffsetsStored(msgspec.Struct, frozen=True):
    """Offsets of this group were committed: the group exists from now on, with or without members."""

    now_ms: int


class Expired(msgspec.Struct, frozen=True):
    """The store has dropped the group, which had neither members nor offsets left."""

    now_ms: int


class TakenOver(msgspec.Struct, frozen=True):
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


class StoredGroup(msgspec.Struct, frozen=True):
    """What has to survive this process: enough to go on with the same generation elsewhere."""

    group_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    members: tuple[GroupMember, ...]


class Store(msgspec.Struct, frozen=True):
    ticket: int
    group: StoredGroup


class StoreDeletion(msgspec.Struct, frozen=True):
    ticket: int


Answer = JoinResult | SyncResult | LeaveResult | ErrorCode


class Reply(msgspec.Struct, frozen=True):
    waiter: int
    answer: Answer


class Forget(msgspec.Struct, frozen=True):
    """The group is dead: drop it from memory."""


Instruction = Store | StoreDeletion | Reply | Forget
