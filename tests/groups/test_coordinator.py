from __future__ import annotations

import asyncio

import pytest

from chronik.clock import SystemClock
from chronik.errors import StorageError
from chronik.groups import group_machine
from chronik.groups.classic.transitions import GroupState
from chronik.groups.coordinator import GroupCoordinator
from chronik.groups.requests import (
    LeaveRequest,
    LeavingMember,
    ListedGroup,
    SyncRequest,
)
from chronik.metadata.commands.groups import UpdateConsumerGroup
from chronik.metadata.stores.local_store import LocalStore
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.files.simulated_files import SimulatedFileSystem

from .coordinator_helpers import (
    CONFIG,
    commit_offsets,
    committed_offsets,
    join,
    join_and_sync,
    join_request,
    list_groups,
    run_scenario,
    running_coordinator,
    sync_as_leader,
    until,
)
from .memory_store import BROKER_AND_TOPICS, MemoryStore


def test_member_lifecycle_from_join_to_leave() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as coordinator:
            joined = await join_and_sync(coordinator, "g")
            heartbeat = ("g", joined.generation, joined.member_id)
            assert await coordinator.heartbeat(*heartbeat) is ErrorCode.NONE
            assert await commit_offsets(coordinator, "g", joined) == [ErrorCode.NONE]
            fetched = await committed_offsets(store, "g", [("t", 0), ("t", 1)])
            assert fetched == {("t", 0): (5, 3, "note"), ("t", 1): None}
            assert await committed_offsets(store, "g") == {("t", 0): (5, 3, "note")}
            assert store.image.groups["g"].members[0].assignment == joined.member_id.encode()
            left = await coordinator.leave(LeaveRequest("g", (LeavingMember(joined.member_id),)))
            assert [member.error for member in left.members] == [ErrorCode.NONE]
            assert store.image.groups["g"].state == "Empty"
            assert await coordinator.heartbeat(*heartbeat) is ErrorCode.UNKNOWN_MEMBER_ID

    run_scenario(scenario)


def test_sync_waits_until_store_has_applied_assignment() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as coordinator:
            joined = await join(coordinator, "g")
            store.hold()
            sync = asyncio.create_task(sync_as_leader(coordinator, joined, "g"))
            await until(lambda: store.held_count == 1)
            assert not sync.done()
            assert "g" not in store.image.groups
            store.release()
            assert (await sync).assignment == joined.member_id.encode()

    run_scenario(scenario)


def test_rejected_proposal_is_mapped_to_coordinator_error() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as coordinator:
            joined = await join(coordinator, "g")
            store.failures.append(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
            assert (await sync_as_leader(coordinator, joined, "g")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
            store.failures.append(KafkaError(ErrorCode.NOT_CONTROLLER))
            assert await commit_offsets(coordinator, "simple") == [ErrorCode.NOT_COORDINATOR]
            assert (await commit_offsets(coordinator, "simple"))[0] is ErrorCode.NONE

    run_scenario(scenario)


def test_session_expires_without_further_requests() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as coordinator:
            await join_and_sync(coordinator, "g", session_ms=50)
            assert coordinator.describe("g").state == GroupState.STABLE
            await until(lambda: coordinator.describe("g").state == GroupState.EMPTY)
            await until(lambda: store.image.groups["g"].state == "Empty")

    run_scenario(scenario)


@pytest.mark.parametrize("phase", ["join", "sync"])
def test_disconnected_waiting_client_does_not_block_others(phase: str) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as coordinator:
            leader = await join_and_sync(coordinator, "g")
            gone = asyncio.create_task(join(coordinator, "g", session_ms=50))
            await until(lambda: coordinator.describe("g").state == GroupState.PREPARING_REBALANCE)
            rejoin = asyncio.create_task(coordinator.join(join_request("g", leader.member_id)))
            if phase == "join":
                gone.cancel()
                joined = await rejoin
            else:
                joined, follower = await rejoin, await gone
                sync = asyncio.create_task(coordinator.sync(SyncRequest("g", 2, follower.member_id)))
                await asyncio.sleep(0)
                sync.cancel()
            assert (joined.generation, len(joined.members)) == (2, 2)
            assert (await sync_as_leader(coordinator, joined, "g")).error is ErrorCode.NONE
            heartbeat = ("g", 2, leader.member_id)
            await until(lambda: coordinator.describe("g").state == GroupState.PREPARING_REBALANCE)
            assert await coordinator.heartbeat(*heartbeat) is ErrorCode.REBALANCE_IN_PROGRESS
            joined = await coordinator.join(join_request("g", leader.member_id))
            assert (joined.generation, len(joined.members)) == (3, 1)

    run_scenario(scenario)


def test_requests_for_missing_groups_are_rejected() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as coordinator:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            assert (await coordinator.join(join_request("g", "member"))).error is unknown
            assert (await coordinator.join(join_request(""))).error is ErrorCode.INVALID_GROUP_ID
            assert (await coordinator.join(join_request("g", session_ms=0))).error is ErrorCode.INVALID_SESSION_TIMEOUT
            assert (await coordinator.sync(SyncRequest("g", 1, "member"))).error is unknown
            assert (await coordinator.sync(SyncRequest("", 1, "member"))).error is ErrorCode.INVALID_GROUP_ID
            assert await coordinator.heartbeat("g", 1, "member") is unknown
            left = await coordinator.leave(LeaveRequest("g", (LeavingMember("member", "a"),)))
            assert (left.error, left.members[0].error, left.members[0].member_id) == (ErrorCode.NONE, unknown, "member")
            assert coordinator.describe("g").error is ErrorCode.GROUP_ID_NOT_FOUND
            assert (await coordinator.delete(["g"]))["g"] is ErrorCode.GROUP_ID_NOT_FOUND
            assert (await coordinator.delete_offsets("g", [("t", 0)])) is ErrorCode.GROUP_ID_NOT_FOUND
            assert await committed_offsets(store, "g", [("t", 0)]) == {("t", 0): None}

    run_scenario(scenario)


def test_number_of_groups_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with running_coordinator(MemoryStore()) as coordinator:
            assert (await coordinator.join(join_request("a"))).error is ErrorCode.MEMBER_ID_REQUIRED
            assert (await coordinator.join(join_request("b"))).error is ErrorCode.MEMBER_ID_REQUIRED
            assert (await coordinator.join(join_request("c"))).error is ErrorCode.COORDINATOR_NOT_AVAILABLE

    monkeypatch.setattr(group_machine, "GROUPS_MAX", 2)
    run_scenario(scenario)


def test_list_groups_filters_ignore_case() -> None:
    async def scenario() -> None:
        async with running_coordinator(MemoryStore()) as coordinator:
            await join_and_sync(coordinator, "stable")
            await commit_offsets(coordinator, "simple")
            assert set(list_groups(coordinator)) == {
                ListedGroup("stable", "consumer", "Stable", "classic"),
                ListedGroup("simple", "", "Empty", "classic"),
            }
            assert [group.group_id for group in list_groups(coordinator, states=["sTABLE"])] == ["stable"]
            assert len(list_groups(coordinator, states=["Stable", "empty"], types=["Classic"])) == 2
            assert list_groups(coordinator, types=["consumer"]) == []
            assert list_groups(coordinator, states=["unheard of"]) == []

    run_scenario(scenario)


def test_deleting_empty_group_deletes_its_offsets() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as coordinator:
            await join_and_sync(coordinator, "busy")
            await commit_offsets(coordinator, "idle")
            errors = await coordinator.delete(["busy", "idle", "idle"])
            assert errors == {"busy": ErrorCode.NON_EMPTY_GROUP, "idle": ErrorCode.NONE}
            assert [group.group_id for group in list_groups(coordinator)] == ["busy"]
            assert await committed_offsets(store, "idle") == {}
            assert list(store.image.groups) == ["busy"]

    run_scenario(scenario)


def test_close_completes_all_waiting_requests() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as coordinator:
            await join_and_sync(coordinator, "g")
            waiting = asyncio.create_task(join(coordinator, "g"))
            await until(lambda: coordinator.describe("g").state == GroupState.PREPARING_REBALANCE)
            committing = asyncio.create_task(commit_offsets(coordinator, "simple"))
            await asyncio.sleep(0)
            await coordinator.close()
            assert (await waiting).error is ErrorCode.NOT_COORDINATOR
            assert await committing == [ErrorCode.NONE]
            closed = ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert (await coordinator.join(join_request("g"))).error is closed
            assert (await commit_offsets(coordinator, "g"))[0] is closed
            assert coordinator.describe("g").error is closed

    run_scenario(scenario)


def test_new_coordinator_continues_stored_generation() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as first:
            joined = await join_and_sync(first, "g")
            await commit_offsets(first, "simple")
        async with running_coordinator(store) as second:
            heartbeat = ("g", joined.generation, joined.member_id)
            assert await second.heartbeat(*heartbeat) is ErrorCode.NONE
            assert second.describe("g").state == GroupState.STABLE
            synced = await second.sync(SyncRequest("g", joined.generation, joined.member_id))
            assert synced.assignment == joined.member_id.encode()
            assert second.describe("simple").state == GroupState.EMPTY

    run_scenario(scenario)


def test_loaded_members_expire_after_full_session() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as first:
            await join_and_sync(first, "g", session_ms=100)
        async with running_coordinator(store) as second:
            assert second.describe("g").state == GroupState.STABLE
            await until(lambda: second.describe("g").state == GroupState.EMPTY)

    run_scenario(scenario)


def test_store_bug_stops_coordinator_after_completing_requests() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        fatal: list[BaseException] = []
        coordinator = GroupCoordinator(store, SystemClock(), CONFIG, fatal.append)
        await coordinator.start()
        bug = RuntimeError("a bug")
        store.failures.append(bug)
        assert await commit_offsets(coordinator, "g") == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        await until(lambda: fatal == [bug])
        assert (await coordinator.join(join_request("g"))).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await coordinator.close()

    run_scenario(scenario)


def test_closed_store_is_not_reported_as_fatal() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as coordinator:
            store.failures.append(StorageError("the disk is gone"))
            assert await commit_offsets(coordinator, "g") == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    run_scenario(scenario)


def test_commands_of_one_group_keep_order() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as coordinator:
            for _ in range(20):
                joined = await join_and_sync(coordinator, "g")
                await coordinator.leave(LeaveRequest("g", (LeavingMember(joined.member_id),)))
            updates = [command for command in store.commands if isinstance(command, UpdateConsumerGroup)]
            assert [update.generation for update in updates] == list(range(1, 41))
            assert [update.state for update in updates] == ["Stable", "Empty"] * 20

    run_scenario(scenario)


def test_groups_and_offsets_survive_restart_with_real_store() -> None:
    async def scenario() -> None:
        files = SimulatedFileSystem()
        store = LocalStore(files)
        await store.start()
        for command in BROKER_AND_TOPICS:
            await store.propose(command)
        async with running_coordinator(store) as coordinator:
            joined = await join_and_sync(coordinator, "g")
            await commit_offsets(coordinator, "g", joined)
        await store.close()
        store = LocalStore(files)
        await store.start()
        async with running_coordinator(store) as coordinator:
            assert await committed_offsets(store, "g") == {("t", 0): (5, 3, "note")}
            heartbeat = ("g", joined.generation, joined.member_id)
            assert await coordinator.heartbeat(*heartbeat) is ErrorCode.NONE
        await store.close()

    run_scenario(scenario)
