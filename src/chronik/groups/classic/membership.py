"""Heartbeat, LeaveGroup, session expiry and group deletion, and the check that a member may commit offsets."""

from __future__ import annotations

from chronik.groups.classic.core import DeletedGroup, DeletionAwaited, EmptinessAwaited, GroupCore
from chronik.groups.classic.deadlines import DeadlineKind
from chronik.groups.classic.rebalancing import complete_join_when_all_joined, rebalance_or_complete_join
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import EMPTINESS_RETRY_DELAY_MS
from chronik.groups.events import CommitAsked, DeletionAsked, HeartbeatAsked, LeaveAsked
from chronik.groups.requests import UNKNOWN_MEMBER, LeaveResult, LeavingMember, LeftMember
from chronik.protocol.errors import ErrorCode


def heartbeat(group: GroupCore, event: HeartbeatAsked) -> None:
    """Handle a Heartbeat request."""
    error_code = group.roster.refusal(event.member_id, event.group_instance_id)
    if error_code is not None:
        group.reply(event.waiter, error_code)
    elif event.generation != group.generation:
        group.reply(event.waiter, ErrorCode.ILLEGAL_GENERATION)
    else:
        group.restart_session(group.roster[event.member_id])
        is_rebalancing = group.state is GroupState.PREPARING_REBALANCE
        group.reply(event.waiter, ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE)


def check_commit(group: GroupCore, event: CommitAsked) -> None:
    """Check whether the client may commit offsets now. A successful check resets the member's session timeout."""
    error_code = _commit_error(group, event)
    group.reply(event.waiter, error_code or ErrorCode.NONE)
    member = group.roster.get(event.member_id)
    if error_code is None and member is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
        group.restart_session(member)


def _commit_error(group: GroupCore, event: CommitAsked) -> ErrorCode | None:
    if event.generation < 0 and group.state is GroupState.EMPTY:
        return None  # an admin tool, or a consumer that assigns its own partitions
    if event.generation < 0 and event.member_id == UNKNOWN_MEMBER and event.group_instance_id is None:
        if event.is_transactional:
            return None
        return ErrorCode.UNKNOWN_MEMBER_ID  # the group has members: only these may commit
    error_code = group.roster.refusal(event.member_id, event.group_instance_id)
    if error_code is not None:
        return error_code
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE and not event.is_transactional:
        return ErrorCode.REBALANCE_IN_PROGRESS  # the member has no assignment yet
    return None


def leave(group: GroupCore, event: LeaveAsked) -> None:
    """Handle a LeaveGroup request. If the group becomes empty, the response waits until that is stored."""
    previous_size = len(group.roster)
    result = LeaveResult(
        ErrorCode.NONE, tuple(_remove_leaving_member(group, leaving) for leaving in event.request.members)
    )
    if len(group.roster) < previous_size:
        rebalance_or_complete_join(group, "members leave")
    else:
        complete_join_when_all_joined(group)  # the rebalance may have waited for a pending member only
    pending_store = _pending_empty_group(group)
    if pending_store is None:
        group.reply(event.waiter, result)
    else:
        pending_store.leavers.append((event.waiter, result))


def _remove_leaving_member(group: GroupCore, leaving: LeavingMember) -> LeftMember:
    member_id: str | None = leaving.member_id
    error: ErrorCode | None = None
    if member_id == UNKNOWN_MEMBER:  # an administrator removes a static member by its instance id
        member_id = group.roster.member_id_of_instance(leaving.group_instance_id)
        error = None if member_id is not None else ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id not in group.roster.pending:
        error = group.roster.refusal(leaving.member_id, leaving.group_instance_id)
    if error is None and member_id is not None:
        if member_id in group.roster.pending:
            group.remove_pending(member_id)
        else:
            group.remove_member(group.roster[member_id])
    return LeftMember(leaving.member_id, leaving.group_instance_id, error or ErrorCode.NONE)


def _pending_empty_group(group: GroupCore) -> EmptinessAwaited | None:
    if group.state is not GroupState.EMPTY:
        return None
    return next((awaited for awaited in group.awaited.values() if isinstance(awaited, EmptinessAwaited)), None)


def emptiness_stored(group: GroupCore, awaited: EmptinessAwaited, error: ErrorCode | None) -> None:
    """Complete the waiting LeaveGroup requests. A failed write is retried; stored members of the past would expire."""
    for waiter, result in awaited.leavers:
        group.reply(waiter, result if error is None else LeaveResult(error))
    if error is not None:
        group.deadlines.set(DeadlineKind.EMPTINESS_RETRY, group.now_ms + EMPTINESS_RETRY_DELAY_MS)


def retry_emptiness(group: GroupCore) -> None:
    if group.state is GroupState.EMPTY:
        group.store_group(EmptinessAwaited())


def expire_session(group: GroupCore, member_id: str) -> None:
    """Remove a member whose session timeout has expired, and rebalance."""
    if member_id in group.roster.pending:
        group.remove_pending(member_id)
        complete_join_when_all_joined(group)
        return
    member = group.roster.get(member_id)
    if member is not None and not member.satisfies_heartbeat:
        group.remove_member(member)
        rebalance_or_complete_join(group, f"the session of member {member_id} expired")


def delete(group: GroupCore, event: DeletionAsked) -> None:
    """Handle the deletion of the group. Only an empty group can be deleted."""
    if group.state is not GroupState.EMPTY:
        group.reply(event.waiter, ErrorCode.NON_EMPTY_GROUP)
        return
    for member_id in sorted(group.roster.pending):
        group.remove_pending(member_id)
    if group.is_stored or group.awaited:
        group.store(DeletionAwaited(event.waiter), DeletedGroup(group.key))
    else:
        group.reply(event.waiter, ErrorCode.NONE)


def deletion_stored(group: GroupCore, awaited: DeletionAwaited, error: ErrorCode | None) -> None:
    """Complete a deletion. A group that a member has joined in the meantime is kept and stored again.

    GROUP_ID_NOT_FOUND from the store means that an earlier deletion with an unknown outcome has succeeded.
    """
    if error is None or error is ErrorCode.GROUP_ID_NOT_FOUND:
        group.is_stored = False
    group.reply(awaited.waiter, error or ErrorCode.NONE)
