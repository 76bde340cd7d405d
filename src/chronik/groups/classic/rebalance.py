"""Rebalances: which members a rebalance waits for, for how long, and how the next generation starts.

A new group waits `group.initial.rebalance.delay.ms` for more members, and as long again after each one that joins.
Later rebalances wait for all known members, up to the longest of their rebalance timeouts.
"""

from __future__ import annotations

from chronik.groups.classic.deadlines import GroupDeadlineKind
from chronik.groups.classic.group_state import ClassicGroupState, PendingEmptyGroup
from chronik.groups.classic.transitions import REBALANCEABLE_STATES, GroupState
from chronik.groups.config import MEMBER_ID_CHECK_DELAY_MS, STATIC_REBALANCE_DELAY_MS_MIN, SYNC_TIMEOUT_MS_MIN
from chronik.groups.requests import SyncResult
from chronik.protocol.errors import ErrorCode
from chronik.wording import pluralize


def rebalance_or_complete_join(group: ClassicGroupState, reason: str) -> None:
    """Start a rebalance if the state allows one. Otherwise complete the current one if all members have joined."""
    if group.state in REBALANCEABLE_STATES:
        prepare_rebalance(group, reason)
    else:
        complete_join_when_all_joined(group)


def prepare_rebalance(group: ClassicGroupState, reason: str) -> None:
    """Start a rebalance: wait until all members have joined or their rebalance timeout expires."""
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
    """Clear all assignments and reject waiting SyncGroup requests, because the generation will not become stable."""
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
    """Complete the first rebalance, or wait again if a member joined during the delay, up to the rebalance timeout."""
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
        _become_empty(group)
    elif group.members.elect_joined_leader():
        _start_generation(group)
    else:
        # Only static members are left and none of them joined: wait until they join or their sessions expire.
        delay_ms = max(group.members.rebalance_timeout_ms, STATIC_REBALANCE_DELAY_MS_MIN)
        group.deadlines.set(GroupDeadlineKind.JOIN, group.now_ms + delay_ms)


def _become_empty(group: ClassicGroupState) -> None:
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
