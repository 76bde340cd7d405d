"""SyncGroup: the leader's assignment is stored first, and only then handed out."""

from __future__ import annotations

from chronik.groups.classic.core import AssignmentAwaited, GroupCore
from chronik.groups.classic.deadlines import DeadlineKind
from chronik.groups.classic.rebalancing import drop_assignments, prepare_rebalance
from chronik.groups.classic.roster import Member
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import GROUP_BYTES_MAX
from chronik.groups.events import SyncAsked
from chronik.groups.requests import SyncRequest, SyncResult
from chronik.protocol.errors import ErrorCode


def sync(group: GroupCore, event: SyncAsked) -> None:
    refusal = _refusal(group, event.request)
    if refusal is not None:
        group.reply(event.waiter, SyncResult(refusal))
        return
    member = group.roster[event.request.member_id]
    if group.state is GroupState.STABLE:
        _has_synced(group, member)
        group.reply(event.waiter, _assigned(group, member))
    else:
        _await_assignment(group, event, member)


def _refusal(group: GroupCore, request: SyncRequest) -> ErrorCode | None:
    refusal = group.roster.refusal(request.member_id, request.group_instance_id)
    if refusal is not None:
        return refusal
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return None


def _differs(asked: str | None, actual: str | None) -> bool:
    """Whether the request expects something else; SyncGroup before 5 does not say what it expects."""
    return asked is not None and actual is not None and asked != actual


def _await_assignment(group: GroupCore, event: SyncAsked, member: Member) -> None:
    is_leader = member.member_id == group.roster.leader
    given = dict(event.request.assignments)
    if is_leader and _bytes_to_store(group, given) > GROUP_BYTES_MAX:
        group.reply(event.waiter, SyncResult(ErrorCode.UNKNOWN_SERVER_ERROR))  # Kafka, when its record is too large
        return
    group.reply(member.sync_waiter, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))  # the same member asked before
    member.sync_waiter = event.waiter
    _has_synced(group, member)
    if is_leader and not _is_storing_assignment(group):
        # A member that the leader left out has an empty assignment, which is legal.
        assignments = {other.member_id: given.get(other.member_id, b"") for other in group.roster}
        group.store_group(AssignmentAwaited(group.generation, assignments), assignments)


def _bytes_to_store(group: GroupCore, assignments: dict[str, bytes]) -> int:
    return group.roster.protocols_bytes + sum(len(assignment) for assignment in assignments.values())


def _has_synced(group: GroupCore, member: Member) -> None:
    group.roster.unsynced.discard(member.member_id)
    if not group.roster.unsynced:
        group.deadlines.cancel(DeadlineKind.SYNC)


def _is_storing_assignment(group: GroupCore) -> bool:
    """Whether it is under way: a leader that asks again, having lost its connection, does not store a second time."""
    return any(
        isinstance(awaited, AssignmentAwaited) and awaited.generation == group.generation
        for awaited in group.awaited.values()
    )


def _assigned(group: GroupCore, member: Member) -> SyncResult:
    return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


def assignment_stored(group: GroupCore, awaited: AssignmentAwaited, error: ErrorCode | None) -> None:
    """Does nothing when a rebalance began while the assignment was on its way: those who waited were told then."""
    if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != awaited.generation:
        return
    if error is not None:
        drop_assignments(group, error)
        prepare_rebalance(group, f"the assignment could not be stored: {error.name}")
        return
    group.assignments_bytes = sum(map(len, awaited.assignments.values()))
    for member in group.roster:
        member.assignment = awaited.assignments[member.member_id]
        if member.sync_waiter is not None:
            group.answer_sync(member, _assigned(group, member))
            # Its session may have ended while we held its answer back, which was not its fault.
            group.restart_session(member)
    group.move(GroupState.STABLE, "the assignment is stored")


def expire_sync(group: GroupCore) -> None:
    """Rebalances: members that joined but never asked for their assignment hold partitions that nobody reads."""
    for member in list(group.roster):
        if member.member_id in group.roster.unsynced:
            group.remove_member(member)
    prepare_rebalance(group, "members missed the sync timeout")
