"""The events of groups: questions, and news beside those of every machine (`coordination.machine`)."""

from __future__ import annotations

from chronik.coordination.machine import Event, Question
from chronik.groups.requests import JoinRequest, LeaveRequest, SyncRequest


class JoinAsked(Question, frozen=True):
    request: JoinRequest
    unique: str
    """Random text for a member id, should one be needed: the group makes no random numbers."""


class SyncAsked(Question, frozen=True):
    request: SyncRequest


class LeaveAsked(Question, frozen=True):
    request: LeaveRequest


class HeartbeatAsked(Question, frozen=True):
    generation: int
    member_id: str
    group_instance_id: str | None


class CommitAsked(Question, frozen=True):
    """Asks whether this member may commit offsets now. The offsets themselves do not concern the group."""

    generation: int
    member_id: str
    group_instance_id: str | None
    is_transactional: bool = False
    """Whether they are committed with a transaction, of which older clients do not say which member's it is."""


class DeletionAsked(Question, frozen=True):
    pass


class OffsetsStored(Event, frozen=True):
    """Offsets of this group were committed: the group exists from now on, with or without members."""
