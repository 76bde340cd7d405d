"""A group deletion or expiry with an unknown outcome that succeeded leaves no stale group in memory."""

from __future__ import annotations

import asyncio

import pytest

from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.groups import DeleteConsumerGroup, OffsetToCommit
from chronik.protocol.errors import ErrorCode

from .coordinator_helpers import commit_offsets, join, list_groups, run_scenario, until
from .shared_image import CoordinatingNode, SharedImage, running_nodes


async def deletion_of_unknown_outcome(node: CoordinatingNode) -> Command:
    """Delete the group so that the outcome is unknown. Return the command, which the test may still apply."""
    await commit_offsets(node.groups, "g")
    assert node.groups.describe("g").error is ErrorCode.NONE  # loads the group into memory
    node.store.hold()
    deleting = asyncio.create_task(node.groups.delete(["g"]))
    await until(lambda: node.store.held_count == 1)
    node.store.drop_held()
    assert await deleting == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    command = node.store.proposed[-1]
    assert isinstance(command, DeleteConsumerGroup)
    return command


def list_group_ids(node: CoordinatingNode) -> list[str]:
    return [entry.group_id for entry in list_groups(node.groups)]


def test_group_exists_until_deletion_is_applied() -> None:
    async def scenario() -> None:
        async with running_nodes(SharedImage()) as node:
            await deletion_of_unknown_outcome(node[1])
            assert list_group_ids(node[1]) == ["g"]
            assert await node[1].groups.delete(["g"]) == {"g": ErrorCode.NONE}
            assert list_group_ids(node[1]) == []

    run_scenario(scenario)


@pytest.mark.parametrize("how", ["deleted", "described", "listed", "joined", "expired"])
def test_group_deleted_with_unknown_outcome_is_not_found(how: str) -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            groups = node[1].groups
            command = await deletion_of_unknown_outcome(node[1])
            assert shared.apply(command, 1).code is ErrorCode.NONE
            assert len(groups._host) == 1
            match how:
                case "deleted":
                    assert await groups.delete(["g"]) == {"g": ErrorCode.NONE}
                    assert await groups.delete(["g"]) == {"g": ErrorCode.GROUP_ID_NOT_FOUND}
                case "described":
                    assert groups.describe("g").error is ErrorCode.GROUP_ID_NOT_FOUND
                case "listed":
                    assert list_group_ids(node[1]) == []
                case "joined":
                    assert (await join(groups, "g")).generation == 1
                    return
                case "expired":
                    await groups.offsets.expire()
            assert len(groups._host) == 0

    run_scenario(scenario)


def test_deletion_of_missing_group_leaves_no_state() -> None:
    """The first deletion is applied while the second one is pending."""

    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            late = await deletion_of_unknown_outcome(node[1])
            node[1].store.hold()
            deleting = asyncio.create_task(node[1].groups.delete(["g"]))
            await until(lambda: node[1].store.held_count == 1)
            assert shared.apply(late, 1).code is ErrorCode.NONE
            node[1].store.release()
            assert await deleting == {"g": ErrorCode.GROUP_ID_NOT_FOUND}
            assert len(node[1].groups._host) == 0

    run_scenario(scenario)


def test_recreated_group_is_not_treated_as_deleted() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            late = await deletion_of_unknown_outcome(node[1])
            joining = asyncio.create_task(join(node[1].groups, "g"))
            assert shared.apply(late, 1).code is ErrorCode.NONE
            assert (await joining).error is ErrorCode.NONE
            await node[1].groups.offsets.expire()
            assert list_group_ids(node[1]) == ["g"]
            offsets = OffsetToCommit("t", 0, 9)
            joined = joining.result()
            assert await commit_offsets(node[1].groups, "g", joined, offsets) == [ErrorCode.REBALANCE_IN_PROGRESS]

    run_scenario(scenario)
