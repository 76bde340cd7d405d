"""Coordinator failover: a new coordinator continues from the stored state; the old one cannot change it any more."""

from __future__ import annotations

import asyncio

from chronik.clock import SystemClock
from chronik.groups.classic.transitions import GroupState
from chronik.groups.coordinator import GroupCoordinator
from chronik.groups.requests import (
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeavingMember,
    SyncRequest,
)
from chronik.metadata.commands.groups import (
    CommitOffsetBatch,
    DeleteConsumerGroup,
    DeleteOffsets,
    OffsetToCommit,
    UpdateConsumerGroup,
)
from chronik.protocol.errors import ErrorCode

from .coordinator_helpers import (
    CONFIG,
    commit_offsets,
    join,
    join_and_sync,
    join_request,
    list_groups,
    run_scenario,
    sync_as_leader,
    until,
)
from .memory_store import MemoryStore
from .shared_image import CoordinatingNode, SharedImage, running_nodes

SHORT_SESSION_MS = 300


def heartbeat_args(joined: JoinResult, instance: str | None = None) -> tuple[str, int, str, str | None]:
    return "g", joined.generation, joined.member_id, instance


async def commit(node: CoordinatingNode, joined: JoinResult, offset: int = 5) -> ErrorCode:
    (error,) = await commit_offsets(node.groups, "g", joined, OffsetToCommit("t", 0, offset, 3, "note"))
    return error


def committed(shared: SharedImage) -> int | None:
    offset = shared.image.offset("g", "t", 0)
    return None if offset is None else offset.offset


def test_new_coordinator_keeps_members_without_rebalance() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            joined = await join_and_sync(node[1].groups, "g")
            assert await node[2].groups.heartbeat(*heartbeat_args(joined)) is ErrorCode.NOT_COORDINATOR
            shared.elect(2)
            assert await node[1].groups.heartbeat(*heartbeat_args(joined)) is ErrorCode.NOT_COORDINATOR
            assert await node[2].groups.heartbeat(*heartbeat_args(joined)) is ErrorCode.NONE
            assert await commit(node[1], joined) is ErrorCode.NOT_COORDINATOR
            assert await commit(node[2], joined) is ErrorCode.NONE
            again = await node[2].groups.sync(SyncRequest("g", joined.generation, joined.member_id))
            assert (again.error, again.assignment) == (ErrorCode.NONE, joined.member_id.encode())
            described = node[2].groups.describe("g")
            assert (described.state, [member.member_id for member in described.members]) == (
                GroupState.STABLE,
                [joined.member_id],
            )
            assert shared.image.groups["g"].generation == joined.generation

    run_scenario(scenario)


def test_commands_carry_coordinator_epoch() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            shared.elect(1)
            epoch = shared.epoch
            assert epoch > 0
            groups = node[1].groups
            joined = await join_and_sync(groups, "g")
            assert await commit(node[1], joined) is ErrorCode.NONE
            assert await commit_offsets(groups, "simple") == [ErrorCode.NONE]
            await groups.leave(LeaveRequest("g", (LeavingMember(joined.member_id),)))
            assert await groups.delete_offsets("g", [("t", 0)]) == {("t", 0): ErrorCode.NONE}
            assert await groups.delete(["g"]) == {"g": ErrorCode.NONE}
            kinds = set()
            for command in node[1].store.proposed:
                kinds.add(type(command))
                if isinstance(command, CommitOffsetBatch):
                    assert [each.coordinator_epoch for each in command.commits] == [epoch] * len(command.commits)
                else:
                    assert isinstance(command, UpdateConsumerGroup | DeleteConsumerGroup | DeleteOffsets)
                    assert command.coordinator_epoch == epoch
            assert kinds == {CommitOffsetBatch, UpdateConsumerGroup, DeleteConsumerGroup, DeleteOffsets}

    run_scenario(scenario)


def test_waiting_requests_get_not_coordinator_when_term_ends() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            first = await join_and_sync(node[1].groups, "g")
            waiting = asyncio.create_task(join(node[1].groups, "g"))  # waits until the first member rejoins
            await until(lambda: node[1].groups.describe("g").state == GroupState.PREPARING_REBALANCE)
            shared.elect(2)
            assert (await waiting).error is ErrorCode.NOT_COORDINATOR
            # The pending join was not stored, so the member continues in its generation.
            assert await node[2].groups.heartbeat(*heartbeat_args(first)) is ErrorCode.NONE

    run_scenario(scenario)


def test_pending_assignment_of_ended_term_is_never_stored() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            joined = await join(node[1].groups, "g")
            node[1].store.hold()
            syncing = asyncio.create_task(sync_as_leader(node[1].groups, joined, "g"))
            await until(lambda: node[1].store.held_count == 1)
            shared.elect(2)
            assert (await syncing).error is ErrorCode.NOT_COORDINATOR
            node[1].store.release()
            await asyncio.sleep(0)
            assert "g" not in shared.image.groups
            late = SyncRequest("g", joined.generation, joined.member_id)
            assert (await node[2].groups.sync(late)).error is ErrorCode.UNKNOWN_MEMBER_ID
            assert await node[2].groups.heartbeat(*heartbeat_args(joined)) is ErrorCode.UNKNOWN_MEMBER_ID
            assert await commit(node[2], joined) is ErrorCode.GROUP_ID_NOT_FOUND

    run_scenario(scenario)


def test_late_commit_does_not_overwrite_new_coordinators_offsets() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            joined = await join_and_sync(node[1].groups, "g")
            node[1].store.hold()
            old = asyncio.create_task(commit(node[1], joined, offset=5))
            await until(lambda: node[1].store.held_count == 1)
            shared.elect(2)
            assert await commit(node[2], joined, offset=9) is ErrorCode.NONE
            node[1].store.release()
            assert await old is ErrorCode.NOT_COORDINATOR
            assert committed(shared) == 9

    run_scenario(scenario)


def test_reelected_coordinator_reloads_stored_state() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            first = await join_and_sync(node[1].groups, "g")
            waiting = asyncio.create_task(join(node[1].groups, "g"))
            await until(lambda: node[1].groups.describe("g").state == GroupState.PREPARING_REBALANCE)
            shared.elect(1)
            assert (await waiting).error is ErrorCode.NOT_COORDINATOR
            assert node[1].groups.describe("g").state == GroupState.STABLE
            assert await node[1].groups.heartbeat(*heartbeat_args(first)) is ErrorCode.NONE
            assert await commit(node[1], first) is ErrorCode.NONE
            (batch,) = [each for each in node[1].store.proposed if isinstance(each, CommitOffsetBatch)]
            assert batch.commits[0].coordinator_epoch == shared.epoch

    run_scenario(scenario)


def test_pending_member_ids_are_lost_on_failover() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            given = await node[1].groups.join(join_request("g"))
            assert given.error is ErrorCode.MEMBER_ID_REQUIRED
            shared.elect(2)
            refused = await node[2].groups.join(join_request("g", given.member_id))
            assert refused.error is ErrorCode.UNKNOWN_MEMBER_ID
            assert (await join(node[2].groups, "g")).error is ErrorCode.NONE

    run_scenario(scenario)


def test_absent_members_expire_after_full_session_on_new_coordinator() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            await join_and_sync(node[1].groups, "g", session_ms=SHORT_SESSION_MS)
            elected_at = asyncio.get_running_loop().time()
            shared.elect(2)
            await until(lambda: not shared.image.groups["g"].members)
            assert asyncio.get_running_loop().time() - elected_at >= SHORT_SESSION_MS / 1000
            assert [type(command) for command in node[2].store.proposed] == [UpdateConsumerGroup]

    run_scenario(scenario)


def test_timers_do_not_fire_after_term_ends() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            joined = await join_and_sync(node[1].groups, "g", session_ms=SHORT_SESSION_MS)
            proposed = len(node[1].store.proposed)
            shared.elect(2)
            began = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() < began + 2 * SHORT_SESSION_MS / 1000:
                assert await node[2].groups.heartbeat(*heartbeat_args(joined)) is ErrorCode.NONE
                await asyncio.sleep(SHORT_SESSION_MS / 10_000)
            assert len(node[1].store.proposed) == proposed
            assert [member.member_id for member in shared.image.groups["g"].members] == [joined.member_id]

    run_scenario(scenario)


def static_join(name: str = "one", member_id: str = "") -> JoinRequest:
    protocols = (("range", b"\0\0\0\0\0\1\0\1t"),)
    return JoinRequest("g", member_id, name, "client", "/127.0.0.1", 10_000, 60_000, "consumer", protocols)


def test_static_restart_across_failover_does_not_rebalance() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            old = await node[1].groups.join(static_join())
            assert (await sync_as_leader(node[1].groups, old, "g")).error is ErrorCode.NONE
            shared.elect(2)
            new = await node[2].groups.join(static_join())
            assert (new.error, new.generation, new.skip_assignment) == (ErrorCode.NONE, old.generation, True)
            assert new.member_id != old.member_id
            synced = await node[2].groups.sync(SyncRequest("g", new.generation, new.member_id, "one"))
            assert (synced.error, synced.assignment) == (ErrorCode.NONE, old.member_id.encode())
            shared.elect(3)
            assert await node[3].groups.heartbeat(*heartbeat_args(old, "one")) is ErrorCode.FENCED_INSTANCE_ID
            assert await node[3].groups.heartbeat(*heartbeat_args(new, "one")) is ErrorCode.NONE
            fenced = await node[3].groups.join(static_join(member_id=old.member_id))
            assert fenced.error is ErrorCode.FENCED_INSTANCE_ID
            assert await commit(node[3], old) is ErrorCode.UNKNOWN_MEMBER_ID
            assert await commit(node[3], new) is ErrorCode.NONE

    run_scenario(scenario)


def test_unstored_static_restart_keeps_old_instance() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            old = await node[1].groups.join(static_join())
            assert (await sync_as_leader(node[1].groups, old, "g")).error is ErrorCode.NONE
            node[1].store.hold()
            coming = asyncio.create_task(node[1].groups.join(static_join()))
            await until(lambda: node[1].store.held_count == 1)
            shared.elect(2)
            assert (await coming).error is ErrorCode.NOT_COORDINATOR
            node[1].store.release()
            assert await node[2].groups.heartbeat(*heartbeat_args(old, "one")) is ErrorCode.NONE
            new = await node[2].groups.join(static_join())
            assert (new.error, new.generation) == (ErrorCode.NONE, old.generation)

    run_scenario(scenario)


def test_group_admin_requests_require_the_coordinator() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            assert await commit_offsets(node[1].groups, "g") == [ErrorCode.NONE]
            shared.elect(2)
            assert [len(list_groups(each.groups)) for each in node.values()] == [0, 1, 0]
            assert node[1].groups.describe("g").error is ErrorCode.NOT_COORDINATOR
            assert node[2].groups.describe("g").state == GroupState.EMPTY
            assert await node[1].groups.delete(["g"]) == {"g": ErrorCode.NOT_COORDINATOR}
            assert (await node[1].groups.delete_offsets("g", [("t", 0)])) is ErrorCode.NOT_COORDINATOR
            assert await node[2].groups.delete(["g", "no such"]) == {
                "g": ErrorCode.NONE,
                "no such": ErrorCode.GROUP_ID_NOT_FOUND,
            }
            assert "g" not in shared.image.groups

    run_scenario(scenario)


def test_sessions_do_not_expire_while_coordinator_is_fenced() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            joined = await join_and_sync(node[1].groups, "g", session_ms=SHORT_SESSION_MS)
            proposed = len(node[1].store.proposed)
            node[1].is_fenced = True  # there is no majority that could elect another coordinator
            began = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() < began + 3 * SHORT_SESSION_MS / 1000:
                assert await node[1].groups.heartbeat(*heartbeat_args(joined)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
                await asyncio.sleep(SHORT_SESSION_MS / 10_000)
            node[1].is_fenced = False
            assert await node[1].groups.heartbeat(*heartbeat_args(joined)) is ErrorCode.NONE
            assert len(node[1].store.proposed) == proposed
            # A member that does not return expires nevertheless.
            node[1].is_fenced = True
            await until(lambda: len(list_groups(node[1].groups)) == 0)
            node[1].is_fenced = False
            await until(lambda: not shared.image.groups["g"].members)

    run_scenario(scenario)


def test_unloaded_group_is_reloaded_after_pending_store_completes() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            joined = await join(node[1].groups, "g", session_ms=SHORT_SESSION_MS)
            node[1].store.hold()
            syncing = asyncio.create_task(sync_as_leader(node[1].groups, joined, "g"))
            await until(lambda: node[1].store.held_count == 1)
            node[1].is_fenced = True
            assert (await syncing).error is ErrorCode.NOT_COORDINATOR
            node[1].is_fenced = False
            # Some clients do not expect COORDINATOR_LOAD_IN_PROGRESS in Heartbeat and SyncGroup responses.
            loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert (await node[1].groups.join(join_request("g"))).error is loading
            assert await node[1].groups.heartbeat(*heartbeat_args(joined)) is ErrorCode.NONE
            assert (await sync_as_leader(node[1].groups, joined, "g")).error is ErrorCode.REBALANCE_IN_PROGRESS
            assert node[1].groups.describe("g").error is loading
            node[1].store.release()
            await until(lambda: node[1].groups.describe("g").error is ErrorCode.NONE)
            assert await node[1].groups.heartbeat(*heartbeat_args(joined)) is ErrorCode.NONE
            assert (await sync_as_leader(node[1].groups, joined, "g")).error is ErrorCode.NONE

    run_scenario(scenario)


def test_group_stored_with_unknown_outcome_is_loaded() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        coordinator = GroupCoordinator(store, SystemClock(), CONFIG)
        await coordinator.start()
        late = UpdateConsumerGroup("g", "consumer", 7, None, None, "Empty", (), 0)
        await store.propose(late)  # the outcome was unknown and the group was unloaded
        assert (await coordinator.join(join_request("g"))).error is ErrorCode.MEMBER_ID_REQUIRED
        assert (await join(coordinator, "g")).generation > 7
        await coordinator.close()

    run_scenario(scenario)
