"""Reliability, row 9 and row 10: the power is cut at every event of a script, and every write fails once."""

from __future__ import annotations

import errno

import pytest

from chronik.errors import StorageFailed
from chronik.quorum import storage as storage_module
from tests.files.twin import TwinFiles
from tests.long import SEED, count
from tests.quorum.script import PowerCut, Script, found

STEPS = 40


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_module, "SEGMENT_BYTES", 700)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + count(8, 80)))
def test_a_power_cut_at_any_event_leaves_what_was_promised_and_invents_nothing(seed: int) -> None:
    rehearsal = Script(TwinFiles(), seed)
    rehearsal.run(STEPS)
    events = rehearsal.files.events
    assert events > 100
    assert rehearsal.reads > 10
    assert found(rehearsal.files.kill())[0] == rehearsal.promised
    for cut in range(events):
        files = TwinFiles()
        script = Script(files, seed)

        def cut_power(action: str, path: str, *, at: int = cut, files: TwinFiles = files) -> None:
            if files.events == at:
                raise PowerCut

        files.before_event = cut_power
        with pytest.raises(PowerCut):
            script.run(STEPS)
        for disk in (files.crash(1000 * cut), files.crash(1000 * cut + 1), files.kill()):
            model, storage = found(disk)
            assert model in script.possible
            storage.close()
            assert found(disk.crash(cut))[0] == model  # what was read back once is there for good


@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
def test_after_a_failed_write_or_sync_nothing_more_is_promised(error_number: int) -> None:
    rehearsal = Script(TwinFiles(), SEED)
    rehearsal.run(STEPS)
    for event in range(0, rehearsal.files.events, 3):
        files = TwinFiles()
        files.fail_at(event, error_number)
        script = Script(files, SEED)
        with pytest.raises(StorageFailed):
            script.run(STEPS)
        model, _ = found(files.crash(event))
        assert model in script.possible
