"""Memory limits of members and committed offsets: requests beyond them are rejected."""

from __future__ import annotations

import random

import pytest

from chronik.groups import coordinator as coordinator_module
from chronik.groups import offsets as offsets_module
from chronik.groups.classic.rebalance import estimate_join_request_size
from chronik.groups.config import (
    GROUP_OFFSETS_BYTES_MAX,
    GROUPS_BYTES_MAX,
    OFFSETS_BYTES_MAX,
    OFFSETS_METADATA_BYTES_MAX,
    SMALL_MEMBER_BYTES_MAX,
)
from chronik.groups.offsets import find_offset_quota_error
from chronik.groups.requests import JoinRequest, LeaveRequest, LeavingMember, SyncRequest
from chronik.metadata.commands.groups import OffsetToCommit
from chronik.metadata.offsets import OFFSET_BYTES, OffsetSizes, OffsetTable
from chronik.metadata.records import CommittedOffset
from chronik.protocol.errors import ErrorCode

from .coordinator_helpers import run_scenario, running_coordinator
from .memory_store import MemoryStore

TOO_MUCH = ErrorCode.COORDINATOR_NOT_AVAILABLE


def join(
    group: str, metadata: bytes, member_id: str = "", client_id: str = "c", instance: str | None = None
) -> JoinRequest:
    protocols = (("range", metadata),)
    return JoinRequest(
        group,
        member_id,
        instance,
        client_id,
        "/h",
        10_000,
        60_000,
        "consumer",
        protocols,
        require_known_member_id=False,
    )


def test_joins_beyond_member_memory_limit_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        large = join("a", bytes(100_000))
        monkeypatch.setattr(coordinator_module, "GROUPS_BYTES_MAX", 2 * estimate_join_request_size(large) + len("abcd"))
        async with running_coordinator(MemoryStore()) as coordinator:
            first = await coordinator.join(large)
            assert first.error is ErrorCode.NONE
            assert (await coordinator.join(join("b", bytes(100_000)))).error is ErrorCode.NONE
            assert (await coordinator.join(join("c", bytes(100_000)))).error is TOO_MUCH
            assert (await coordinator.join(join("d", b"a usual one"))).error is ErrorCode.NONE
            again = await coordinator.join(join("a", bytes(100_000), first.member_id))
            assert again.error is ErrorCode.NONE, "a member that does not grow is accepted"
            await coordinator.leave(LeaveRequest("a", (LeavingMember(again.member_id),)))
            (usual,) = coordinator.describe("d").members
            await coordinator.leave(LeaveRequest("d", (LeavingMember(usual.member_id),)))
            assert (await coordinator.join(join("c", bytes(100_000)))).error is ErrorCode.NONE

    run_scenario(scenario)


@pytest.mark.parametrize("instance", [None, "static"])
def test_large_group_can_rebalance_repeatedly(monkeypatch: pytest.MonkeyPatch, instance: str | None) -> None:
    """New assignments replace the previous ones, and a static member replaces itself."""

    async def scenario() -> None:
        monkeypatch.setattr(coordinator_module, "GROUPS_BYTES_MAX", 400_000)
        async with running_coordinator(MemoryStore()) as coordinator:

            async def synced(size: int) -> ErrorCode:
                assigned = ((joined.member_id, bytes(size)),)
                request = SyncRequest("g", joined.generation, joined.member_id, instance, assignments=assigned)
                return (await coordinator.sync(request)).error

            joined = await coordinator.join(join("g", bytes(100_000), instance=instance))
            assert await synced(250_000) is ErrorCode.NONE
            for _ in range(2):
                asked_as = "" if instance else joined.member_id
                joined = await coordinator.join(join("g", bytes(100_000), asked_as, instance=instance))
                assert joined.error is ErrorCode.NONE
                assert await synced(250_000) is ErrorCode.NONE
            assert await synced(340_000) is TOO_MUCH

    run_scenario(scenario)


def test_assignments_of_removed_members_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(coordinator_module, "GROUPS_BYTES_MAX", 400_000)
        async with running_coordinator(MemoryStore()) as coordinator:
            joined = await coordinator.join(join("g", b"small"))
            assigned = ((joined.member_id, bytes(350_000)),)
            await coordinator.sync(SyncRequest("g", joined.generation, joined.member_id, assignments=assigned))
            assert (await coordinator.join(join("h", bytes(100_000)))).error is TOO_MUCH
            await coordinator.leave(LeaveRequest("g", (LeavingMember(joined.member_id),)))
            assert (await coordinator.join(join("h", bytes(100_000)))).error is ErrorCode.NONE

    run_scenario(scenario)


def test_client_names_count_toward_member_memory() -> None:
    assert (
        estimate_join_request_size(join("g", b"", client_id="x" * 32_000))
        - estimate_join_request_size(join("g", b"", client_id=""))
        == 32_000
    )


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        ("GROUP_OFFSETS_BYTES_MAX", ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        ("OFFSETS_BYTES_MAX", ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        ("OFFSETS_METADATA_BYTES_MAX", ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_full_group_can_still_replace_offsets(monkeypatch: pytest.MonkeyPatch, limit: str, error: ErrorCode) -> None:
    async def scenario() -> None:
        letters = 1_000
        each = letters if limit == "OFFSETS_METADATA_BYTES_MAX" else letters + OFFSET_BYTES
        monkeypatch.setattr(offsets_module, limit, 2 * each)
        async with running_coordinator(MemoryStore()) as coordinator:

            async def code(partition: int, letters: int) -> ErrorCode:
                offset = OffsetToCommit("t", partition, 7, -1, "m" * letters)
                (error,) = await coordinator.offsets.commit("g", [offset])
                return error

            assert [await code(0, letters), await code(1, letters)] == [ErrorCode.NONE] * 2
            assert await code(2, 1) is error
            assert await code(1, letters + 1) is error
            assert await code(1, letters) is ErrorCode.NONE
            assert await code(1, letters - 1) is ErrorCode.NONE

    run_scenario(scenario)


def test_tracked_offset_sizes_match_actual_sizes() -> None:
    rng = random.Random(3)
    table = OffsetTable()
    for _ in range(2_000):
        group, topic, partition = rng.choice("abc"), rng.choice("tu"), rng.randrange(4)
        if rng.random() < 0.4 and table.get(group, topic, partition) is not None:
            table.remove(group, topic, partition)
        else:
            metadata = rng.choice([None, "", "m" * rng.randrange(50)])
            table.put(group, topic, partition, CommittedOffset(1, -1, metadata, 0), bytes(16))
    held = {group: [each.metadata or "" for each in table.group(group).values()] for group in "abc"}
    everything = [metadata for group in held.values() for metadata in group]
    total = sum(OFFSET_BYTES + len(metadata) for metadata in everything)
    for group, kept in held.items():
        size = sum(OFFSET_BYTES + len(each) for each in kept)
        assert table.sizes(group) == OffsetSizes(size, total, sum(map(len, everything)))


class FullImage:
    def __init__(self, sizes: OffsetSizes) -> None:
        self.sizes = sizes
        self.groups: dict[str, object] = {}

    def offset_sizes(self, group_id: str) -> OffsetSizes:
        return self.sizes

    def offsets(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        return {}


@pytest.mark.parametrize(
    "sizes",
    [
        OffsetSizes(GROUP_OFFSETS_BYTES_MAX - OFFSET_BYTES - 1, 0, 0),
        OffsetSizes(0, OFFSETS_BYTES_MAX - OFFSET_BYTES - 1, 0),
        OffsetSizes(0, 0, OFFSETS_METADATA_BYTES_MAX - 1),
    ],
)
def test_memory_limits_are_exact(sizes: OffsetSizes) -> None:
    image = FullImage(sizes)
    fitting, exceeding = ((OffsetToCommit("t", 0, 7, -1, "m" * letters),) for letters in (1, 2))
    assert find_offset_quota_error(image, "g", fitting) is None  # type: ignore[arg-type]
    assert find_offset_quota_error(image, "g", exceeding) is not None  # type: ignore[arg-type]


def test_default_member_memory_limits() -> None:
    assert (GROUPS_BYTES_MAX, SMALL_MEMBER_BYTES_MAX) == (32 << 20, 64 << 10)
