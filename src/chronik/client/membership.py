"""Membership of a consumer group with the classic protocol: join, assign as the group's leader, heartbeat and leave.

The caller chooses the protocol type, the metadata of its member, and the function that assigns work to members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from chronik.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from chronik.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from chronik.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

NO_MEMBER: Final = ""

REJOIN_ERRORS: Final = frozenset(
    {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}
)
"""Error codes after which a member joins the group again."""

Assign = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
"""A function from the metadata of all members to their assignments, by member id."""


class GroupMembership:
    """A member of a group. Not thread-safe; requests go through the given client."""

    def __init__(
        self,
        cluster: ClusterClient,
        group: str,
        protocol_type: str,
        protocol: str,
        assign: Assign,
        *,
        session_timeout_s: float,
        rebalance_timeout_s: float,
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._protocol_type = protocol_type
        self._protocol = protocol
        self._assign = assign
        self._session_timeout_ms = int(session_timeout_s * 1000)
        self._rebalance_timeout_s = rebalance_timeout_s
        self._member_id = NO_MEMBER
        self._generation = -1

    def join(self, metadata: bytes) -> bytes:
        """Join the group, or join again after a rebalance, and return this member's assignment.

        Raises:
            ClientError: A broker does not respond.
            KafkaError: The coordinator rejects the member.
        """
        while True:
            joined = self._send_join(metadata)
            code = ErrorCode(joined.error_code)
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = joined.member_id
                continue
            if code is ErrorCode.UNKNOWN_MEMBER_ID and self._member_id != NO_MEMBER:
                self._member_id = NO_MEMBER
                continue
            raise_for_code(code, f"group {self._group}")
            self._member_id, self._generation = joined.member_id, joined.generation_id
            assignments: Mapping[str, bytes] = {}
            if joined.leader == joined.member_id:
                assignments = self._assign({each.member_id: bytes(each.metadata) for each in joined.members})
            synced = self._send_sync(assignments)
            if synced.error_code not in REJOIN_ERRORS:
                raise_for_code(synced.error_code, f"group {self._group}")
                return bytes(synced.assignment)
            self._forget_member(ErrorCode(synced.error_code))

    def heartbeat(self) -> bool:
        """Send a heartbeat, and return False if the member has to join again.

        Raises:
            ClientError: The coordinator does not respond.
            KafkaError: The coordinator has moved, or rejects the member.
        """
        request = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id)
        response = self._cluster.coordinator(self._group).request(request, HeartbeatResponse)
        code = ErrorCode(response.error_code)
        if code in REJOIN_ERRORS:
            self._forget_member(code)
            return False
        self._raise_for_code(code)
        return True

    def leave(self) -> None:
        """Leave the group, so that the other members need not wait for the session to expire.

        Raises:
            ClientError: The coordinator does not respond.
        """
        if self._member_id == NO_MEMBER:
            return
        request = LeaveGroupRequest(
            group_id=self._group, member_id=self._member_id, members=[MemberIdentity(member_id=self._member_id)]
        )
        self._member_id = NO_MEMBER
        self._cluster.coordinator(self._group).request(request, LeaveGroupResponse)

    def _forget_member(self, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = NO_MEMBER

    def _raise_for_code(self, code: ErrorCode) -> None:
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._cluster.invalidate_metadata()
        raise_for_code(code, f"group {self._group}")

    def _send_join(self, metadata: bytes) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=int(self._rebalance_timeout_s * 1000),
            member_id=self._member_id,
            protocol_type=self._protocol_type,
            protocols=[JoinGroupRequestProtocol(name=self._protocol, metadata=metadata)],
        )

        def send() -> JoinGroupResponse:
            coordinator = self._cluster.coordinator(self._group)
            response = coordinator.request(request, JoinGroupResponse, wait_s=self._rebalance_timeout_s)
            if ErrorCode(response.error_code).retriable:
                raise KafkaError(ErrorCode(response.error_code), f"group {self._group}")
            return response

        return self._cluster.retry(send)

    def _send_sync(self, assignments: Mapping[str, bytes]) -> SyncGroupResponse:
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=self._protocol_type,
            protocol_name=self._protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=assignment)
                for member, assignment in assignments.items()
            ],
        )
        coordinator = self._cluster.coordinator(self._group)
        return coordinator.request(request, SyncGroupResponse, wait_s=self._rebalance_timeout_s)
