"""Rebalances of a classic group: JoinGroup, the start of the next generation, and SyncGroup.

A new group waits `group.initial.rebalance.delay.ms` for more members, and as long again after each one that joins.
Later rebalances wait for all known members, up to the longest of their rebalance timeouts. The leader's assignment is
stored before any member receives it.
"""

from __future__ import annotations

from msgspec.structs import replace

from chronik.groups.classic.group_state import (
    ClassicGroupState,
    GroupDeadlineKind,
    PendingAssignment,
    PendingEmptyGroup,
    PendingReplacement,
)
from chronik.groups.classic.members import ClassicMember, estimate_member_names_size, estimate_protocols_size
from chronik.groups.classic.transitions import REBALANCEABLE_STATES, GroupState
from chronik.groups.config import (
    GROUP_BYTES_MAX,
    MEMBER_BYTES_MAX,
    MEMBER_ID_CHECK_DELAY_MS,
    MEMBER_ID_PREFIX_CHARACTERS_MAX,
    PENDING_MEMBERS_MAX,
    STATIC_REBALANCE_DELAY_MS_MIN,
    SYNC_TIMEOUT_MS_MIN,
    GroupConfig,
)
from chronik.groups.requests import (
    UNKNOWN_MEMBER_ID,
    JoinRequest,
    JoinRequested,
    JoinResult,
    SyncRequest,
    SyncRequested,
    SyncResult,
)
from chronik.limits import GROUP_INSTANCE_ID_CHARACTERS_MAX, GROUP_PROTOCOL_CHARACTERS_MAX, GROUP_PROTOCOLS_MAX
from chronik.protocol.errors import ErrorCode
from chronik.wording import pluralize


def rebalance_or_complete_join(group: ClassicGroupState, reason: str) -> None:
    """Start a rebalance or, during a rebalance, complete it if all members have joined."""
    if group.state in REBALANCEABLE_STATES:
        prepare_rebalance(group, reason)
    else:
        complete_join_when_all_joined(group)


def prepare_rebalance(group: ClassicGroupState, reason: str) -> None:
    """Start a rebalance, which waits until all members have joined or the rebalance timeout expires."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.members.pending_sync_ids.clear()
    group.deadlines.cancel(GroupDeadlineKind.SYNC)
    is_first_rebalance = group.state is GroupState.EMPTY
    group.transition_to(GroupState.PREPARING_REBALANCE, reason)
    if is_first_rebalance:
        _start_initial_delay(group)
    elif group.members.have_all_joined:
        complete_join(group)
    else:
        group.deadlines.set(GroupDeadlineKind.JOIN, group.now_ms + group.members.rebalance_timeout_ms)


def reset_assignments(group: ClassicGroupState, error: ErrorCode) -> None:
    """Clear all assignments and reject waiting SyncGroup requests, because the current generation is abandoned."""
    group.assignments_bytes = 0
    for member in group.members:
        member.assignment = b""
        if member.sync_waiter is not None:
            group.reply_to_sync(member, SyncResult(error))
            group.reset_session_timeout(member)


def complete_join_when_all_joined(group: ClassicGroupState) -> None:
    """Complete the current rebalance if every member has joined."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.lifecycle.previous_state is GroupState.EMPTY and len(group.members):
        return  # the first rebalance of a group ends with its initial delay
    if group.members.have_all_joined:
        complete_join(group)


def _start_initial_delay(group: ClassicGroupState) -> None:
    group.has_joined_during_delay = False
    group.initial_delay_ms = group.config.initial_rebalance_delay_ms
    group.remaining_initial_delay_ms = max(group.members.rebalance_timeout_ms - group.initial_delay_ms, 0)
    group.deadlines.set(GroupDeadlineKind.INITIAL_DELAY, group.now_ms + group.initial_delay_ms)


def on_initial_delay_expired(group: ClassicGroupState) -> None:
    """Complete the first rebalance of a group, or extend its initial delay if another member has joined."""
    if not group.has_joined_during_delay or group.remaining_initial_delay_ms == 0:
        complete_join(group)
        return
    group.has_joined_during_delay = False
    previous_delay_ms = group.initial_delay_ms
    group.initial_delay_ms = min(group.config.initial_rebalance_delay_ms, group.remaining_initial_delay_ms)
    group.remaining_initial_delay_ms = max(group.remaining_initial_delay_ms - previous_delay_ms, 0)
    group.deadlines.set(GroupDeadlineKind.INITIAL_DELAY, group.now_ms + group.initial_delay_ms)


def complete_join(group: ClassicGroupState) -> None:
    """End the join phase with the members that joined. Absent static members stay until their session expires."""
    if not group.store_member_ids():
        group.deadlines.set(GroupDeadlineKind.JOIN, group.now_ms + MEMBER_ID_CHECK_DELAY_MS)
        return
    group.deadlines.cancel(GroupDeadlineKind.JOIN)
    group.deadlines.cancel(GroupDeadlineKind.INITIAL_DELAY)
    for member in list(group.members):
        if member.join_waiter is None and member.group_instance_id is None:
            group.remove_member(member)
    if len(group.members) == 0:
        _transition_to_empty(group)
    elif group.members.elect_joined_leader():
        _start_generation(group)
    else:
        # Only static members are left and none of them joined: wait until they join or their sessions expire.
        delay_ms = max(group.members.rebalance_timeout_ms, STATIC_REBALANCE_DELAY_MS_MIN)
        group.deadlines.set(GroupDeadlineKind.JOIN, group.now_ms + delay_ms)


def _transition_to_empty(group: ClassicGroupState) -> None:
    group.generation += 1
    group.protocol_name = None
    group.transition_to(GroupState.EMPTY, "no member is left")
    group.store_group(PendingEmptyGroup())


def _start_generation(group: ClassicGroupState) -> None:
    group.generation += 1
    group.protocol_name = group.members.select_protocol()
    group.transition_to(GroupState.COMPLETING_REBALANCE, pluralize(len(group.members), "member"))
    for member in group.members:
        group.members.pending_sync_ids.add(member.member_id)
        group.reply_to_join(member, group.build_join_result(member))
        group.reset_session_timeout(member)
        member.is_new = False
    timeout_ms = max(group.members.rebalance_timeout_ms, SYNC_TIMEOUT_MS_MIN)
    group.deadlines.set(GroupDeadlineKind.SYNC, group.now_ms + timeout_ms)


def find_join_request_error(request: JoinRequest, config: GroupConfig) -> ErrorCode | None:
    """Return the error of a JoinGroup request that is invalid in any group state, or None."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if len(request.protocols) > GROUP_PROTOCOLS_MAX or estimate_protocols_size(request.protocols) > MEMBER_BYTES_MAX:
        return ErrorCode.INVALID_REQUEST
    if len(request.group_instance_id or "") > GROUP_INSTANCE_ID_CHARACTERS_MAX:
        return ErrorCode.INVALID_REQUEST
    names = (request.protocol_type, *(name for name, _ in request.protocols))
    if any(len(word) > GROUP_PROTOCOL_CHARACTERS_MAX for word in names):
        return ErrorCode.INVALID_REQUEST
    return None


def estimate_join_request_size(request: JoinRequest) -> int:
    """Return the approximate memory in bytes that a JoinGroup request adds to its group."""
    return estimate_protocols_size(request.protocols) + estimate_member_names_size(
        request.client_id, request.group_instance_id
    )


def handle_join(group: ClassicGroupState, event: JoinRequested) -> None:
    """Handle a JoinGroup request."""
    request = event.request
    if not _has_capacity_for(group, request):
        _reject_over_capacity(group, event)
    elif not _supports_group_protocol(group, request):
        _reject_join(group, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif request.member_id == UNKNOWN_MEMBER_ID:
        _join_without_member_id(group, event)
    elif request.member_id in group.members.pending_member_ids and request.group_instance_id is None:
        _add_member(group, event, request.member_id)
    else:
        _rejoin_member(group, event)


def _reject_join(group: ClassicGroupState, event: JoinRequested, error: ErrorCode) -> None:
    group.reply(event.waiter, JoinResult(error, event.request.member_id))


def _has_capacity_for(group: ClassicGroupState, request: JoinRequest) -> bool:
    """Return whether the group has capacity for the member.

    During a rebalance only members that have joined count, because `group.max.size` may have been lowered below the
    size of the group.
    """
    max_size = group.config.max_size
    member = group.members.get(request.member_id)
    # A static member that rejoins without its member id replaces itself and needs no capacity.
    is_known = member is not None or group.members.find_static_member_id(request.group_instance_id) is not None
    if not is_known and group.members.protocols_bytes + estimate_protocols_size(request.protocols) > GROUP_BYTES_MAX:
        return False
    if group.state is GroupState.PREPARING_REBALANCE:
        already_joined = member is not None and member.join_waiter is not None
        return already_joined or group.members.awaiting_join_count < max_size
    if group.state is GroupState.EMPTY:
        return True
    return is_known or len(group.members) < max_size


def _reject_over_capacity(group: ClassicGroupState, event: JoinRequested) -> None:
    """Reject a JoinGroup request that exceeds the capacity of the group, and remove the member if it exists."""
    member = group.members.get(event.request.member_id)
    if member is not None:
        group.remove_member(member)
    group.remove_pending_member(event.request.member_id)
    group.reply(event.waiter, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID))
    complete_join_when_all_joined(group)


def _supports_group_protocol(group: ClassicGroupState, request: JoinRequest) -> bool:
    """Return whether a JoinGroup request supports a protocol of the group."""
    if group.state is GroupState.EMPTY:
        return bool(request.protocol_type) and bool(request.protocols)
    return request.protocol_type == group.protocol_type and group.members.supports_any_protocol(request.protocols)


def _join_without_member_id(group: ClassicGroupState, event: JoinRequested) -> None:
    request = event.request
    old_id = group.members.find_static_member_id(request.group_instance_id)
    if request.group_instance_id is not None:
        new_id = _generate_member_id(event, request.group_instance_id)
        if old_id is None:
            _add_member(group, event, new_id)
        else:
            _replace_static_member(group, event, group.members[old_id], new_id)
    elif request.require_known_member_id:
        _reply_with_member_id(group, event, _generate_member_id(event, request.client_id))
    else:
        _add_member(group, event, _generate_member_id(event, request.client_id))


def _generate_member_id(event: JoinRequested, name: str) -> str:
    """Return a new member id: the truncated client id or instance id, and a random suffix."""
    return f"{name[:MEMBER_ID_PREFIX_CHARACTERS_MAX]}-{event.random_suffix}"


def _reply_with_member_id(group: ClassicGroupState, event: JoinRequested, member_id: str) -> None:
    """Reply to a JoinGroup request with MEMBER_ID_REQUIRED and a new member id, with which the client must rejoin."""
    if len(group.members.pending_member_ids) >= PENDING_MEMBERS_MAX:
        group.reply(event.waiter, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID))
        return
    group.members.pending_member_ids.add(member_id)
    group.deadlines.set(GroupDeadlineKind.SESSION, event.now_ms + event.request.session_timeout_ms, member_id)
    group.reply(event.waiter, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))


def _add_member(group: ClassicGroupState, event: JoinRequested, member_id: str) -> None:
    request = event.request
    if group.state is GroupState.PREPARING_REBALANCE and group.lifecycle.previous_state is GroupState.EMPTY:
        group.has_joined_during_delay = True
    if len(group.members) == 0:
        group.protocol_type = request.protocol_type
    group.members.add(
        ClassicMember(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            join_waiter=event.waiter,
            is_new=True,
        )
    )
    # A new member sends no heartbeats before its join completes, and its connection may be dead: it gets more time than
    # a session timeout, but a limited one.
    group.deadlines.set(GroupDeadlineKind.SESSION, event.now_ms + group.config.new_member_join_timeout_ms, member_id)
    group.store_member_id(group.members[member_id])  # a previous member of this instance may have left, unstored yet
    rebalance_or_complete_join(group, f"member {member_id} joins: {request.reason or 'no reason given'}")


def _rejoin_member(group: ClassicGroupState, event: JoinRequested) -> None:
    """Handle a JoinGroup request that contains a member id."""
    request = event.request
    error_code = group.members.find_member_error(request.member_id, request.group_instance_id)
    if error_code is not None:
        _reject_join(group, event, error_code)
        return
    member = group.members[request.member_id]
    is_unchanged = member.protocols == request.protocols
    is_leader = member.member_id == group.members.leader
    # A member that missed its response receives it again. A leader that rejoins a stable group requests a rebalance,
    # because something outside its metadata has changed, such as the number of partitions.
    missed_response = group.state is GroupState.COMPLETING_REBALANCE or (
        group.state is GroupState.STABLE and not is_leader
    )
    if is_unchanged and missed_response:
        group.reply(event.waiter, group.build_join_result(member))
        return
    _update_member(group, event, member)
    rebalance_or_complete_join(group, f"member {member.member_id} rejoins: {request.reason or 'no reason given'}")


def _update_member(group: ClassicGroupState, event: JoinRequested, member: ClassicMember) -> None:
    request = event.request
    group.members.update_protocols(member, request.protocols)
    group.members.update_client_id(member, request.client_id)
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.client_host = request.client_host
    previous_waiter = group.members.set_join_waiter(member, event.waiter)
    # The same member sent JoinGroup again, probably on a new connection. Clients retry after this error.
    group.reply(previous_waiter, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))


def _replace_static_member(group: ClassicGroupState, event: JoinRequested, member: ClassicMember, new_id: str) -> None:
    """Assign a new member id to a restarted static member. A client that still uses the old member id is fenced."""
    previous_leader = group.members.leader
    group.reply_to_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, member.member_id))
    group.reply_to_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
    group.deadlines.cancel(GroupDeadlineKind.SESSION, member.member_id)
    group.members.replace_static_member_id(member, new_id)
    _update_member(group, event, member)
    member.is_new = False
    group.reset_session_timeout(member)
    reason = f"static member {event.request.group_instance_id} restarts as {new_id}"
    if group.state is GroupState.STABLE and group.members.select_protocol() == group.protocol_name:
        result = _build_restarted_member_result(group, event.request, member, previous_leader or "")
        group.store_group(PendingReplacement(new_id, event.waiter, group.generation, result))
        return
    group.store_member_id(member)
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The leader is currently assigning partitions to the old member id.
        prepare_rebalance(group, reason)
    else:
        rebalance_or_complete_join(group, reason)


def _build_restarted_member_result(
    group: ClassicGroupState, request: JoinRequest, member: ClassicMember, previous_leader: str
) -> JoinResult:
    """Return the JoinGroup result for a restarted static member.

    A restarted leader must not assign partitions again. Clients before JoinGroup 9 do not support `skip_assignment`:
    their result names the leader's old member id, so that they act as followers.
    """
    result = group.build_join_result(member)
    if request.supports_skip_assignment:
        return replace(result, skip_assignment=member.member_id == group.members.leader)
    return replace(result, leader=previous_leader, members=())


def on_replacement_stored(group: ClassicGroupState, awaited: PendingReplacement, error: ErrorCode | None) -> None:
    """Respond to a restarted static member after its new member id is stored, unless a rebalance has started."""
    member = group.members.get(awaited.member_id)
    if member is None or member.join_waiter != awaited.waiter:
        return
    if group.state is not GroupState.STABLE or group.generation != awaited.generation:
        return
    group.reply_to_join(member, awaited.result if error is None else JoinResult(error, UNKNOWN_MEMBER_ID))
    group.reset_session_timeout(member)


def handle_sync(group: ClassicGroupState, event: SyncRequested) -> None:
    """Handle a SyncGroup request."""
    error_code = _find_sync_request_error(group, event.request)
    if error_code is not None:
        group.reply(event.waiter, SyncResult(error_code))
        return
    member = group.members[event.request.member_id]
    if group.state is GroupState.STABLE:
        _record_sync_request(group, member)
        group.reply(event.waiter, _build_assignment_result(group, member))
    else:
        _await_assignment(group, event, member)


def _find_sync_request_error(group: ClassicGroupState, request: SyncRequest) -> ErrorCode | None:
    error_code = group.members.find_member_error(request.member_id, request.group_instance_id)
    if error_code is not None:
        return error_code
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _is_different_protocol(request.protocol_type, group.protocol_type) or _is_different_protocol(
        request.protocol_name, group.protocol_name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return None


def _is_different_protocol(requested: str | None, actual: str | None) -> bool:
    """Return whether a request's protocol differs from the group's. SyncGroup before version 5 contains no protocol."""
    return requested is not None and actual is not None and requested != actual


def _await_assignment(group: ClassicGroupState, event: SyncRequested, member: ClassicMember) -> None:
    is_leader = member.member_id == group.members.leader
    assignments_by_member = dict(event.request.assignments)
    if is_leader and _count_bytes_to_store(group, assignments_by_member) > GROUP_BYTES_MAX:
        # Kafka returns this error when the group's record is too large.
        group.reply(event.waiter, SyncResult(ErrorCode.UNKNOWN_SERVER_ERROR))
        return
    group.reply(member.sync_waiter, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))  # an earlier request of this member
    member.sync_waiter = event.waiter
    _record_sync_request(group, member)
    if is_leader and not _is_storing_assignment(group):
        # A member that the leader did not mention has an empty assignment, which is legal.
        assignments = {other.member_id: assignments_by_member.get(other.member_id, b"") for other in group.members}
        group.store_group(PendingAssignment(group.generation, assignments), assignments)


def _count_bytes_to_store(group: ClassicGroupState, assignments: dict[str, bytes]) -> int:
    return group.members.protocols_bytes + sum(len(assignment) for assignment in assignments.values())


def _record_sync_request(group: ClassicGroupState, member: ClassicMember) -> None:
    """Record that a member has sent SyncGroup. Cancel the sync timeout when all members have."""
    group.members.pending_sync_ids.discard(member.member_id)
    if not group.members.pending_sync_ids:
        group.deadlines.cancel(GroupDeadlineKind.SYNC)


def _is_storing_assignment(group: ClassicGroupState) -> bool:
    """Return whether the assignment of this generation is being stored already, so that a retry must not store it."""
    return any(
        isinstance(awaited, PendingAssignment) and awaited.generation == group.generation
        for awaited in group.pending_stores.values()
    )


def _build_assignment_result(group: ClassicGroupState, member: ClassicMember) -> SyncResult:
    """Return the SyncGroup result with the member's assignment."""
    return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


def on_assignment_stored(group: ClassicGroupState, awaited: PendingAssignment, error: ErrorCode | None) -> None:
    """Send the stored assignment to all members that wait for it, unless another rebalance has started."""
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
            group.reply_to_sync(member, _build_assignment_result(group, member))
            # The session may have expired while the response was held back.
            group.reset_session_timeout(member)
    group.transition_to(GroupState.STABLE, "the assignment is stored")


def expire_pending_syncs(group: ClassicGroupState) -> None:
    """Remove the members that have not sent SyncGroup in time, and start a rebalance."""
    for member in list(group.members):
        if member.member_id in group.members.pending_sync_ids:
            group.remove_member(member)
    prepare_rebalance(group, "members missed the sync timeout")
