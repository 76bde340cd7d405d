"""Rebalances: which members a rebalance waits for, for how long, and how the next generation starts.

A new group waits `group.initial.rebalance.delay.ms` for more members, and as long again after each one that joins.
Later rebalances wait for all known members, up to the longest of their rebalance timeouts.
"""

from __future__ import annotations

from chronik.groups.classic.core import EmptinessAwaited, GroupCore
from chronik.groups.classic.deadlines import DeadlineKind
from chronik.groups.classic.transitions import REBALANCE_CAN_START_IN, GroupState
from chronik.groups.config import NEW_ID_DELAY_MS, STATIC_ROUND_DELAY_MS_MIN, SYNC_TIMEOUT_MS_MIN
from chronik.groups.requests import SyncResult
from chronik.protocol.errors import ErrorCode
from chronik.wording import counted


def rebalance_or_complete_join(group: GroupCore, reason: str) -> None:
    """Start a rebalance if the state allows one. Otherwise complete the current one if all members have joined."""
    if group.state in REBALANCE_CAN_START_IN:
        prepare_rebalance(group, reason)
    else:
        complete_join_when_all_joined(group)


def prepare_rebalance(group: GroupCore, reason: str) -> None:
    """Start a rebalance: wait until all members have joined or their rebalance timeout expires."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        drop_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.roster.unsynced.clear()
    group.deadlines.cancel(DeadlineKind.SYNC)
    is_first_rebalance = group.state is GroupState.EMPTY
    group.move(GroupState.PREPARING_REBALANCE, reason)
    if is_first_rebalance:
        _start_initial_delay(group)
    elif group.roster.all_joined:
        complete_join(group)
    else:
        group.deadlines.set(DeadlineKind.JOIN, group.now_ms + group.roster.rebalance_timeout_ms)


def drop_assignments(group: GroupCore, error: ErrorCode) -> None:
    """Clear all assignments and reject waiting SyncGroup requests, because the generation will not become stable."""
    group.assignments_bytes = 0
    for member in group.roster:
        member.assignment = b""
        if member.sync_waiter is not None:
            group.answer_sync(member, SyncResult(error))
            group.restart_session(member)


def complete_join_when_all_joined(group: GroupCore) -> None:
    """Complete the current rebalance if every member has joined."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.lifecycle.previous_state is GroupState.EMPTY and len(group.roster):
        return  # the first rebalance of a group ends with its initial delay
    if group.roster.all_joined:
        complete_join(group)


def _start_initial_delay(group: GroupCore) -> None:
    group.joined_during_delay = False
    group.initial_delay_ms = group.config.initial_rebalance_delay_ms
    group.initial_delay_left_ms = max(group.roster.rebalance_timeout_ms - group.initial_delay_ms, 0)
    group.deadlines.set(DeadlineKind.INITIAL_DELAY, group.now_ms + group.initial_delay_ms)


def end_initial_delay(group: GroupCore) -> None:
    """Complete the first rebalance, or wait again if a member joined during the delay, up to the rebalance timeout."""
    if not group.joined_during_delay or group.initial_delay_left_ms == 0:
        complete_join(group)
        return
    group.joined_during_delay = False
    previous_delay_ms = group.initial_delay_ms
    group.initial_delay_ms = min(group.config.initial_rebalance_delay_ms, group.initial_delay_left_ms)
    group.initial_delay_left_ms = max(group.initial_delay_left_ms - previous_delay_ms, 0)
    group.deadlines.set(DeadlineKind.INITIAL_DELAY, group.now_ms + group.initial_delay_ms)


def complete_join(group: GroupCore) -> None:
    """End the join phase with the members that joined. Absent static members stay until their session expires."""
    if not group.store_ids():
        group.deadlines.set(DeadlineKind.JOIN, group.now_ms + NEW_ID_DELAY_MS)
        return
    group.deadlines.cancel(DeadlineKind.JOIN)
    group.deadlines.cancel(DeadlineKind.INITIAL_DELAY)
    for member in list(group.roster):
        if member.join_waiter is None and member.group_instance_id is None:
            group.remove_member(member)
    if len(group.roster) == 0:
        _become_empty(group)
    elif group.roster.elect_joined_leader():
        _start_generation(group)
    else:
        # Only static members are left and none of them joined: wait until they join or their sessions expire.
        delay_ms = max(group.roster.rebalance_timeout_ms, STATIC_ROUND_DELAY_MS_MIN)
        group.deadlines.set(DeadlineKind.JOIN, group.now_ms + delay_ms)


def _become_empty(group: GroupCore) -> None:
    group.generation += 1
    group.protocol_name = None
    group.move(GroupState.EMPTY, "no member is left")
    group.store_group(EmptinessAwaited())


def _start_generation(group: GroupCore) -> None:
    group.generation += 1
    group.protocol_name = group.roster.select_protocol()
    group.move(GroupState.COMPLETING_REBALANCE, counted(len(group.roster), "member"))
    for member in group.roster:
        group.roster.unsynced.add(member.member_id)
        group.answer_join(member, group.joined(member))
        group.restart_session(member)
        member.is_new = False
    timeout_ms = max(group.roster.rebalance_timeout_ms, SYNC_TIMEOUT_MS_MIN)
    group.deadlines.set(DeadlineKind.SYNC, group.now_ms + timeout_ms)
