"""Reason of a node's stop: a storage error takes precedence over errors that follow from it."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from chronik.config import NodeConfig
from chronik.errors import ChronikError, InvariantError, StorageError, exc_info_if_unexpected, find_root_cause
from chronik.node.node import Node
from chronik.node.run import log_event_loop_error

FULL = StorageError("write topics/x/0/0.log: No space left on device")


def test_root_cause_of_exception_group_is_storage_error_or_first_leaf() -> None:
    lost = ChronikError("a peer is gone")
    assert find_root_cause(FULL) is FULL
    assert find_root_cause(ExceptionGroup("unhandled errors in a TaskGroup", [FULL])) is FULL
    nested = ExceptionGroup("outer", [lost, ExceptionGroup("inner", [InvariantError("x"), FULL])])
    assert find_root_cause(nested) is FULL
    assert find_root_cause(ExceptionGroup("outer", [lost, InvariantError("x")])) is lost


def test_only_unexpected_errors_are_logged_with_traceback() -> None:
    full, descriptors = OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EMFILE, "Too many open files")
    for error in (full, descriptors, FULL, ExceptionGroup("", [full, ExceptionGroup("", [FULL])])):
        assert exc_info_if_unexpected(error) is None
    bugs = (KeyError("x"), InvariantError("x"), TimeoutError(), ExceptionGroup("", [FULL, KeyError("x")]))
    for bug in bugs:
        assert exc_info_if_unexpected(bug) is bug


def test_failed_background_job_stops_node_with_its_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def write() -> None:
        raise FULL

    async def follow() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write())

    async def run_node() -> None:
        node = Node(NodeConfig(data_dir=tmp_path, kafka=NodeConfig().kafka._replace(port=0)))
        await node.start()
        node._start_supervised_tasks([follow])
        try:
            with pytest.raises(StorageError, match="No space left"):
                await node.wait_until_stopped()
        finally:
            await node.stop()

    asyncio.run(run_node())
    assert "node is stopping: write topics/x/0/0.log: No space left on device" in caplog.text
    assert "Traceback" not in caplog.text


def test_event_loop_logs_lack_of_descriptors_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(error: Exception) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(log_event_loop_error)
        loop.call_exception_handler({"message": "accept failed", "exception": error})

    asyncio.run(fail(OSError(errno.EMFILE, "Too many open files")))
    assert "event loop: accept failed: [Errno 24] Too many open files" in caplog.text
    assert caplog.records[-1].exc_info is None
    asyncio.run(fail(KeyError("a bug")))
    assert caplog.records[-1].exc_info is not None
