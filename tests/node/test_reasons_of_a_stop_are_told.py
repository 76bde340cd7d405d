"""Whatever tasks an error came through, a node says why it stops: the disk first, from which the rest follows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chronik.config import NodeConfig
from chronik.errors import ChronikError, InvariantBroken, StorageFailed, reason_of
from chronik.node.node import Node

FULL = StorageFailed("write topics/x/0/0.log: No space left on device")


def test_a_group_is_told_by_what_is_in_it() -> None:
    lost = ChronikError("a peer is gone")
    assert reason_of(FULL) is FULL
    assert reason_of(ExceptionGroup("unhandled errors in a TaskGroup", [FULL])) is FULL
    nested = ExceptionGroup("outer", [lost, ExceptionGroup("inner", [InvariantBroken("x"), FULL])])
    assert reason_of(nested) is FULL
    assert reason_of(ExceptionGroup("outer", [lost, InvariantBroken("x")])) is lost


def test_a_job_that_dies_in_a_group_ends_the_node_with_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def write() -> None:
        raise FULL

    async def follow() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write())

    async def live() -> None:
        node = Node(NodeConfig(data_dir=tmp_path, kafka=NodeConfig().kafka._replace(port=0)))
        await node.start()
        node._supervise([follow])
        try:
            with pytest.raises(StorageFailed, match="No space left"):
                await node.wait_until_stopped()
        finally:
            await node.stop()

    asyncio.run(live())
    assert "the node stops: write topics/x/0/0.log: No space left on device" in caplog.text
