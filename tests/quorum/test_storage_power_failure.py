"""Power failures at every event of a write script, and a failure of every write (reliability rows 9 and 10)."""

from __future__ import annotations

import errno

import pytest

from chronik.errors import StorageError
from tests.files.simulated_files import SimulatedFileSystem
from tests.quorum.storage_script import PowerFailure, Script, recover_model
from tests.run_size import SEED, sized

STEPS = 40


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.quorum.storage.SEGMENT_BYTES", 700)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + sized(8, 80)))
def test_power_failure_at_any_event_keeps_durable_state(seed: int) -> None:
    rehearsal = Script(SimulatedFileSystem(), seed)
    rehearsal.run(STEPS)
    events = rehearsal.files.events
    assert events > 100
    assert rehearsal.reads > 10
    assert recover_model(rehearsal.files.kill())[0] == rehearsal.promised
    for cut in range(events):
        files = SimulatedFileSystem()
        script = Script(files, seed)

        def cut_power(action: str, path: str, *, at: int = cut, files: SimulatedFileSystem = files) -> None:
            if files.events == at:
                raise PowerFailure

        files.before_event = cut_power
        with pytest.raises(PowerFailure):
            script.run(STEPS)
        for disk in (files.crash(1000 * cut), files.crash(1000 * cut + 1), files.kill()):
            model, storage = recover_model(disk)
            assert model in script.possible
            storage.close()
            assert recover_model(disk.crash(cut))[0] == model  # recovered data stays durable


@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
def test_failed_write_or_sync_makes_storage_unusable(error_number: int) -> None:
    rehearsal = Script(SimulatedFileSystem(), SEED)
    rehearsal.run(STEPS)
    for event in range(0, rehearsal.files.events, 3):
        files = SimulatedFileSystem()
        files.fail_at(event, error_number)
        script = Script(files, SEED)
        with pytest.raises(StorageError):
            script.run(STEPS)
        model, _ = recover_model(files.crash(event))
        assert model in script.possible
