"""The coordinator's requests and results, independent of Kafka's wire formats and their versions."""

from __future__ import annotations

from typing import Final

import msgspec

from chronik.protocol.errors import ErrorCode

UNKNOWN_MEMBER: Final = ""
"""The member id of a client that has not been given one."""

NO_GENERATION: Final = -1
"""Used in answers that carry an error, and in commits of clients that use no group management."""

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the member's order of preference."""

TopicPartition = tuple[str, int]


class JoinRequest(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    require_known_member_id: bool = True
    """JoinGroup >= 4: a client without an id is given one and asked to come again with it."""
    supports_skip_assignment: bool = True
    """JoinGroup >= 9."""
    reason: str | None = None


class JoinedMember(msgspec.Struct, frozen=True):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(msgspec.Struct, frozen=True):
    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncRequest(msgspec.Struct, frozen=True):
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


class SyncResult(msgspec.Struct, frozen=True):
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeavingMember(msgspec.Struct, frozen=True):
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveRequest(msgspec.Struct, frozen=True):
    group_id: str
    members: tuple[LeavingMember, ...]


class LeftMember(msgspec.Struct, frozen=True):
    member_id: str
    group_instance_id: str | None
    error: ErrorCode


class LeaveResult(msgspec.Struct, frozen=True):
    error: ErrorCode
    members: tuple[LeftMember, ...] = ()


class DescribedMember(msgspec.Struct, frozen=True):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(msgspec.Struct, frozen=True):
    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    """Empty unless the group is stable, as in Kafka."""
    members: tuple[DescribedMember, ...]
    error: ErrorCode = ErrorCode.NONE
    """GROUP_ID_NOT_FOUND with state Dead when there is no such group; DescribeGroups < 6 shows only the state."""


class ListedGroup(msgspec.Struct, frozen=True):
    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"
