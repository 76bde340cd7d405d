"""Requests and results of the group coordinator, independent of Kafka's wire formats and API versions.

The classes derived from `StateMachineRequest` and `StateMachineEvent` are the events of the group state machines (see
`coordination.machine`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from chronik.coordination.machine import StateMachineEvent, StateMachineRequest
from chronik.protocol.errors import ErrorCode

UNKNOWN_MEMBER_ID: Final = ""
"""The member id in JoinGroup requests of clients that have no member id yet."""

NO_GENERATION: Final = -1
"""The generation id of commits without group membership, and of error responses."""

MemberProtocols = tuple[tuple[str, bytes], ...]
"""A member's protocols (assignors) and their metadata, in order of preference."""

TopicPartition = tuple[str, int]


class JoinRequest(msgspec.Struct, frozen=True):
    """A JoinGroup request."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: MemberProtocols
    require_known_member_id: bool = True
    """Whether a client without member id receives one and must rejoin with it (JoinGroup version 4 and later)."""
    supports_skip_assignment: bool = True
    """Whether the client understands `skip_assignment` in the response (JoinGroup version 9 and later)."""
    reason: str | None = None


class JoinedMember(msgspec.Struct, frozen=True):
    """A member in the JoinGroup response to the leader."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(msgspec.Struct, frozen=True):
    """The result of a JoinGroup request."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncRequest(msgspec.Struct, frozen=True):
    """A SyncGroup request. Only the leader sends assignments."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


class SyncResult(msgspec.Struct, frozen=True):
    """The result of a SyncGroup request: the member's assignment."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeavingMember(msgspec.Struct, frozen=True):
    """A member that a LeaveGroup request removes."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveRequest(msgspec.Struct, frozen=True):
    """A LeaveGroup request, which removes one or more members."""

    group_id: str
    members: tuple[LeavingMember, ...]


class LeftMember(msgspec.Struct, frozen=True):
    """The outcome of LeaveGroup for one member."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


class LeaveResult(msgspec.Struct, frozen=True):
    """The result of a LeaveGroup request."""

    error: ErrorCode
    members: tuple[LeftMember, ...] = ()


class DescribedMember(msgspec.Struct, frozen=True):
    """A group member in a DescribeGroups response."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(msgspec.Struct, frozen=True):
    """A group in a DescribeGroups response."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    """The selected protocol, empty unless the group is stable (as in Kafka)."""
    members: tuple[DescribedMember, ...]
    error: ErrorCode = ErrorCode.NONE
    """The error code; GROUP_ID_NOT_FOUND for a missing group. DescribeGroups before version 6 omits the error."""


class ListedGroup(msgspec.Struct, frozen=True):
    """A group in a ListGroups response."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


class JoinRequested(StateMachineRequest, frozen=True):
    """An event for a group's state machine: a client has sent JoinGroup."""

    request: JoinRequest
    random_suffix: str
    """Random suffix for a new member id. It is part of the event because state machines are deterministic."""


class SyncRequested(StateMachineRequest, frozen=True):
    """An event for a group's state machine: a client has sent SyncGroup."""

    request: SyncRequest


class LeaveRequested(StateMachineRequest, frozen=True):
    """An event for a group's state machine: a client has sent LeaveGroup."""

    request: LeaveRequest


class HeartbeatRequested(StateMachineRequest, frozen=True):
    """An event for a group's state machine: a client has sent Heartbeat."""

    generation: int
    member_id: str
    group_instance_id: str | None


class CommitCheckRequested(StateMachineRequest, frozen=True):
    """An event for a group's state machine: a client wants to commit offsets. The group checks its membership."""

    generation: int
    member_id: str
    group_instance_id: str | None
    is_transactional: bool = False
    """Whether the offsets belong to a transaction. Older clients then do not send a member id."""


class DeletionRequested(StateMachineRequest, frozen=True):
    """An event for a group's state machine: a client has sent DeleteGroups."""


class OffsetsStored(StateMachineEvent, frozen=True):
    """An event for a group's state machine: committed offsets were stored, which may have created the group."""
