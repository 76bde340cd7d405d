"""Staying in a group, leaving it, and being dropped from it; and which members may commit offsets in its name."""

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
    refusal = group.roster.refusal(event.member_id, event.group_instance_id)
    if refusal is not None:
        group.reply(event.waiter, refusal)
    elif event.generation != group.generation:
        group.reply(event.waiter, ErrorCode.ILLEGAL_GENERATION)
    else:
        group.restart_session(group.roster[event.member_id])
        rebalancing = group.state is GroupState.PREPARING_REBALANCE
        group.reply(event.waiter, ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE)


def check_commit(group: GroupCore, event: CommitAsked) -> None:
    refusal = _refusal_of_commit(group, event)
    group.reply(event.waiter, refusal or ErrorCode.NONE)
    member = group.roster.get(event.member_id)
    if refusal is None and member is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
        group.restart_session(member)


def _refusal_of_commit(group: GroupCore, event: CommitAsked) -> ErrorCode | None:
    if event.generation < 0 and group.state is GroupState.EMPTY:
        return None  # an admin tool, or a consumer that assigns its partitions itself
    if event.generation < 0 and event.member_id == UNKNOWN_MEMBER and event.group_instance_id is None:
        if event.is_transactional:
            return None
        return ErrorCode.UNKNOWN_MEMBER_ID  # the same, but the group belongs to its members now
    refusal = group.roster.refusal(event.member_id, event.group_instance_id)
    if refusal is not None:
        return refusal
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE and not event.is_transactional:
        return ErrorCode.REBALANCE_IN_PROGRESS  # it owns nothing yet; members that still prepare own what they had
    return None


def leave(group: GroupCore, event: LeaveAsked) -> None:
    size_before = len(group.roster)
    result = LeaveResult(ErrorCode.NONE, tuple(_leave_one(group, leaving) for leaving in event.request.members))
    if len(group.roster) < size_before:
        rebalance_or_complete_join(group, "members leave")
    else:
        complete_join_when_all_joined(group)  # a pending member may have been the last one waited for
    emptiness = _emptiness_being_stored(group)
    if emptiness is None:
        group.reply(event.waiter, result)
    else:
        emptiness.leavers.append((event.waiter, result))


def _leave_one(group: GroupCore, leaving: LeavingMember) -> LeftMember:
    member_id: str | None = leaving.member_id
    error: ErrorCode | None = None
    if member_id == UNKNOWN_MEMBER:  # an administrator removes a static member by its name
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


def _emptiness_being_stored(group: GroupCore) -> EmptinessAwaited | None:
    if group.state is not GroupState.EMPTY:
        return None
    return next((awaited for awaited in group.awaited.values() if isinstance(awaited, EmptinessAwaited)), None)


def emptiness_stored(group: GroupCore, awaited: EmptinessAwaited, error: ErrorCode | None) -> None:
    """A failure leaves the old members in the store. After a load their sessions end: nothing is lost."""
    for waiter, result in awaited.leavers:
        group.reply(waiter, result if error is None else LeaveResult(error))
    if error is not None:
        group.deadlines.set(DeadlineKind.EMPTINESS_RETRY, group.now_ms + EMPTINESS_RETRY_DELAY_MS)


def retry_emptiness(group: GroupCore) -> None:
    if group.state is GroupState.EMPTY:
        group.store_group(EmptinessAwaited())


def expire_session(group: GroupCore, member_id: str) -> None:
    if member_id in group.roster.pending:
        group.remove_pending(member_id)
        complete_join_when_all_joined(group)
        return
    member = group.roster.get(member_id)
    if member is not None and not member.satisfies_heartbeat:
        group.remove_member(member)
        rebalance_or_complete_join(group, f"the session of member {member_id} ended")


def delete(group: GroupCore, event: DeletionAsked) -> None:
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
    """Somebody may have joined meanwhile: then the group lives on, and is stored again with its next generation. If the
    store does not know the group, an earlier deletion was done after all, though its outcome was not known in time."""
    if error is None or error is ErrorCode.GROUP_ID_NOT_FOUND:
        group.is_stored = False
    group.reply(awaited.waiter, error or ErrorCode.NONE)
