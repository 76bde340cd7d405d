"""SyncGroup: the leader's assignment is stored before any member receives it."""

from __future__ import annotations

from chronik.groups.classic.deadlines import GroupDeadlineKind
from chronik.groups.classic.group_state import ClassicGroupState, PendingAssignment
from chronik.groups.classic.members import ClassicMember
from chronik.groups.classic.rebalance import prepare_rebalance, reset_assignments
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import GROUP_BYTES_MAX
from chronik.groups.events import SyncRequested
from chronik.groups.requests import SyncRequest, SyncResult
from chronik.protocol.errors import ErrorCode


def handle_sync(group: ClassicGroupState, event: SyncRequested) -> None:
    """Handle a SyncGroup request."""
    error_code = _request_error(group, event.request)
    if error_code is not None:
        group.reply(event.waiter, SyncResult(error_code))
        return
    member = group.members[event.request.member_id]
    if group.state is GroupState.STABLE:
        _mark_synced(group, member)
        group.reply(event.waiter, _assignment_result(group, member))
    else:
        _await_assignment(group, event, member)


def _request_error(group: ClassicGroupState, request: SyncRequest) -> ErrorCode | None:
    error_code = group.members.member_error(request.member_id, request.group_instance_id)
    if error_code is not None:
        return error_code
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return None


def _differs(requested: str | None, actual: str | None) -> bool:
    """Return whether a protocol in the request differs from the group's. SyncGroup before version 5 names none."""
    return requested is not None and actual is not None and requested != actual


def _await_assignment(group: ClassicGroupState, event: SyncRequested, member: ClassicMember) -> None:
    is_leader = member.member_id == group.members.leader
    assignments_by_member = dict(event.request.assignments)
    if is_leader and _bytes_to_store(group, assignments_by_member) > GROUP_BYTES_MAX:
        # Kafka returns this error when the group's record is too large.
        group.reply(event.waiter, SyncResult(ErrorCode.UNKNOWN_SERVER_ERROR))
        return
    group.reply(member.sync_waiter, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))  # an earlier request of this member
    member.sync_waiter = event.waiter
    _mark_synced(group, member)
    if is_leader and not _is_storing_assignment(group):
        # A member that the leader did not mention has an empty assignment, which is legal.
        assignments = {other.member_id: assignments_by_member.get(other.member_id, b"") for other in group.members}
        group.store_group(PendingAssignment(group.generation, assignments), assignments)


def _bytes_to_store(group: ClassicGroupState, assignments: dict[str, bytes]) -> int:
    return group.members.protocols_bytes + sum(len(assignment) for assignment in assignments.values())


def _mark_synced(group: ClassicGroupState, member: ClassicMember) -> None:
    """Record that a member has sent SyncGroup, and cancel the sync deadline after the last one."""
    group.members.pending_sync_ids.discard(member.member_id)
    if not group.members.pending_sync_ids:
        group.deadlines.cancel(GroupDeadlineKind.SYNC)


def _is_storing_assignment(group: ClassicGroupState) -> bool:
    """Return whether the assignment of this generation is being stored, so that a retried SyncGroup stores nothing."""
    return any(
        isinstance(awaited, PendingAssignment) and awaited.generation == group.generation
        for awaited in group.pending_stores.values()
    )


def _assignment_result(group: ClassicGroupState, member: ClassicMember) -> SyncResult:
    """Return the SyncGroup result with the member's assignment."""
    return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


def on_assignment_stored(group: ClassicGroupState, awaited: PendingAssignment, error: ErrorCode | None) -> None:
    """Send the stored assignment to all waiting members. Do nothing if a rebalance has started in the meantime."""
    if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != awaited.generation:
        return
    if error is not None:
        reset_assignments(group, error)
        prepare_rebalance(group, f"the assignment could not be stored: {error.name}")
        return
    group.assignments_bytes = sum(map(len, awaited.assignments.values()))
    for member in group.members:
        member.assignment = awaited.assignments[member.member_id]
        if member.sync_waiter is not None:
            group.reply_to_sync(member, _assignment_result(group, member))
            # The session may have expired while the response was held back.
            group.reset_session_timeout(member)
    group.transition_to(GroupState.STABLE, "the assignment is stored")


def expire_pending_syncs(group: ClassicGroupState) -> None:
    """Remove the members that joined but never sent SyncGroup, and rebalance, so that their partitions are consumed."""
    for member in list(group.members):
        if member.member_id in group.members.pending_sync_ids:
            group.remove_member(member)
    prepare_rebalance(group, "members missed the sync timeout")
