"""ENOSPC, EIO and a failed fsync at every event: StorageError is raised, and nothing is acknowledged afterwards."""

from __future__ import annotations

import errno

import pytest

from chronik.errors import StorageError
from tests.files.simulated_files import SimulatedFileSystem

from .harness import LogHarness, batch
from .script import check_partitions, new_states, run_script

OPERATIONS = 100


def events_of_the_script() -> int:
    files = SimulatedFileSystem()
    run_script(files, new_states(), seed=11, operations=OPERATIONS)
    return files.events


@pytest.mark.slow
@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO])
def test_storage_failure_at_any_event_keeps_acknowledged_records(error_number: int) -> None:
    events = events_of_the_script()
    assert events > 2 * OPERATIONS
    for event in range(1, events):
        files = SimulatedFileSystem()
        files.fail_at(event, error_number)
        promises = new_states()
        with pytest.raises(StorageError):
            run_script(files, promises, seed=11, operations=OPERATIONS)
        assert files.failure is not None
        # Neither a power failure nor a restart loses records that were acknowledged before.
        check_partitions(files.crash(event), promises)
        check_partitions(files.kill(), promises)


def test_sync_fails_after_an_earlier_sync_failed() -> None:
    world = LogHarness()
    world.append(batch(b"a"))
    world.sync()
    world.append(batch(b"b"))
    ticket = world.log.begin_sync()
    assert ticket is not None
    world.simulated_files.fail_at(world.simulated_files.events, errno.EIO)
    with pytest.raises(StorageError):
        ticket.run()
    with pytest.raises(StorageError):
        ticket.run()
    with pytest.raises(StorageError):
        world.append(batch(b"c"))
    assert world.log.synced_offset == 1


def test_failed_sync_may_drop_unsynced_records() -> None:
    """A simulated disk that kept the data would hide a wrong acknowledgement."""
    files = SimulatedFileSystem()
    world = LogHarness(files)
    world.append(batch(b"a"))
    ticket = world.log.begin_sync()
    assert ticket is not None
    assert [file.path.rpartition("/")[2] for file in ticket.files] == ["leader-epochs", "00000000000000000000.log"]
    files.fail_at(files.events + 1, errno.EIO)
    with pytest.raises(StorageError):
        ticket.run()
    assert all(LogHarness(files.crash(seed)).log.log_end_offset == 0 for seed in range(20))


def test_reads_succeed_after_storage_failure() -> None:
    world = LogHarness()
    world.append(batch(b"a"))
    world.sync()
    world.simulated_files.fail_at(world.simulated_files.events, errno.ENOSPC)
    with pytest.raises(StorageError):
        world.append(batch(b"b"))
    assert len(world.log.read(0, 1000, 1)) > 0
