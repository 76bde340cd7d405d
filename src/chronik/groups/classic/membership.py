"""Heartbeat, LeaveGroup, session expiry and group deletion, and the check that a member may commit offsets."""

from __future__ import annotations

from chronik.groups.classic.group_state import (
    ClassicGroupState,
    GroupDeadlineKind,
    GroupDeletion,
    PendingDeletion,
    PendingEmptyGroup,
)
from chronik.groups.classic.rebalance import complete_join_when_all_joined, rebalance_or_complete_join
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import EMPTY_GROUP_RETRY_DELAY_MS
from chronik.groups.requests import (
    UNKNOWN_MEMBER_ID,
    CommitCheckRequested,
    DeletionRequested,
    HeartbeatRequested,
    LeaveRequested,
    LeaveResult,
    LeavingMember,
    LeftMember,
)
from chronik.protocol.errors import ErrorCode


def handle_heartbeat(group: ClassicGroupState, event: HeartbeatRequested) -> None:
    """Handle a Heartbeat request."""
    error_code = group.members.find_member_error(event.member_id, event.group_instance_id)
    if error_code is not None:
        group.reply(event.waiter, error_code)
    elif event.generation != group.generation:
        group.reply(event.waiter, ErrorCode.ILLEGAL_GENERATION)
    else:
        group.reset_session_timeout(group.members[event.member_id])
        is_rebalancing = group.state is GroupState.PREPARING_REBALANCE
        group.reply(event.waiter, ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE)


def handle_commit_check(group: ClassicGroupState, event: CommitCheckRequested) -> None:
    """Handle a check whether a client may commit offsets now. If it may, reset the member's session timeout."""
    error_code = _find_commit_error(group, event)
    group.reply(event.waiter, error_code or ErrorCode.NONE)
    member = group.members.get(event.member_id)
    if error_code is None and member is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
        group.reset_session_timeout(member)


def _find_commit_error(group: ClassicGroupState, event: CommitCheckRequested) -> ErrorCode | None:
    if event.generation < 0 and group.state is GroupState.EMPTY:
        return None  # an admin tool, or a consumer that assigns its own partitions
    if event.generation < 0 and event.member_id == UNKNOWN_MEMBER_ID and event.group_instance_id is None:
        if event.is_transactional:
            return None
        return ErrorCode.UNKNOWN_MEMBER_ID  # the group has members: only these may commit
    error_code = group.members.find_member_error(event.member_id, event.group_instance_id)
    if error_code is not None:
        return error_code
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE and not event.is_transactional:
        return ErrorCode.REBALANCE_IN_PROGRESS  # the member has no assignment yet
    return None


def handle_leave(group: ClassicGroupState, event: LeaveRequested) -> None:
    """Handle a LeaveGroup request. If no member remains, respond only after the empty group is stored."""
    previous_size = len(group.members)
    result = LeaveResult(
        ErrorCode.NONE, tuple(_remove_leaving_member(group, leaving) for leaving in event.request.members)
    )
    if len(group.members) < previous_size:
        rebalance_or_complete_join(group, "members leave")
    else:
        complete_join_when_all_joined(group)  # the rebalance may have waited for a pending member only
    pending_store = _find_pending_empty_group(group)
    if pending_store is None:
        group.reply(event.waiter, result)
    else:
        pending_store.leavers.append((event.waiter, result))


def _remove_leaving_member(group: ClassicGroupState, leaving: LeavingMember) -> LeftMember:
    member_id: str | None = leaving.member_id
    error: ErrorCode | None = None
    if member_id == UNKNOWN_MEMBER_ID:  # an administrator removes a static member by its instance id
        member_id = group.members.find_static_member_id(leaving.group_instance_id)
        error = None if member_id is not None else ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id not in group.members.pending_member_ids:
        error = group.members.find_member_error(leaving.member_id, leaving.group_instance_id)
    if error is None and member_id is not None:
        if member_id in group.members.pending_member_ids:
            group.remove_pending_member(member_id)
        else:
            group.remove_member(group.members[member_id])
    return LeftMember(leaving.member_id, leaving.group_instance_id, error or ErrorCode.NONE)


def _find_pending_empty_group(group: ClassicGroupState) -> PendingEmptyGroup | None:
    if group.state is not GroupState.EMPTY:
        return None
    return next((awaited for awaited in group.pending_stores.values() if isinstance(awaited, PendingEmptyGroup)), None)


def on_empty_group_stored(group: ClassicGroupState, awaited: PendingEmptyGroup, error: ErrorCode | None) -> None:
    """Respond to the waiting LeaveGroup requests. If the write of the empty group failed, schedule a retry."""
    for waiter, result in awaited.leavers:
        group.reply(waiter, result if error is None else LeaveResult(error))
    if error is not None:
        group.deadlines.set(GroupDeadlineKind.EMPTY_GROUP_RETRY, group.now_ms + EMPTY_GROUP_RETRY_DELAY_MS)


def retry_store_empty_group(group: ClassicGroupState) -> None:
    if group.state is GroupState.EMPTY:
        group.store_group(PendingEmptyGroup())


def expire_session(group: ClassicGroupState, member_id: str) -> None:
    """Remove a member whose session has timed out, and start a rebalance."""
    if member_id in group.members.pending_member_ids:
        group.remove_pending_member(member_id)
        complete_join_when_all_joined(group)
        return
    member = group.members.get(member_id)
    if member is not None and not member.has_satisfied_heartbeat:
        group.remove_member(member)
        rebalance_or_complete_join(group, f"the session of member {member_id} expired")


def handle_delete(group: ClassicGroupState, event: DeletionRequested) -> None:
    """Handle the deletion of the group. Only an empty group can be deleted."""
    if group.state is not GroupState.EMPTY:
        group.reply(event.waiter, ErrorCode.NON_EMPTY_GROUP)
        return
    for member_id in sorted(group.members.pending_member_ids):
        group.remove_pending_member(member_id)
    if group.is_stored or group.pending_stores:
        group.store_change(PendingDeletion(event.waiter), GroupDeletion(group.key))
    else:
        group.reply(event.waiter, ErrorCode.NONE)


def on_deletion_stored(group: ClassicGroupState, awaited: PendingDeletion, error: ErrorCode | None) -> None:
    """Respond to the deletion of a group. If a member has joined in the meantime, store the group again.

    GROUP_ID_NOT_FOUND from the store means that an earlier deletion with an unknown outcome has succeeded.
    """
    if error is None or error is ErrorCode.GROUP_ID_NOT_FOUND:
        group.is_stored = False
    group.reply(awaited.waiter, error or ErrorCode.NONE)
