from __future__ import annotations

import errno
import random
from dataclasses import dataclass, field

import pytest

from chronik.errors import StorageError
from chronik.wal.log import WriteAheadLog
from chronik.wal.snapshots import WalSnapshotWriter, find_newest_snapshot, read_snapshot, remove_older_snapshots
from tests.files.simulated_files import SimulatedFileSystem

FOLDER = "log"


@dataclass
class Script:
    """Random appends, syncs, rolls, snapshots and truncations, with the records that must survive a power failure."""

    files: SimulatedFileSystem
    seed: int
    promised: list[bytes] = field(default_factory=list)
    """Records covered by a sync; during a truncation, only those that it keeps."""
    written: list[bytes] = field(default_factory=list)
    snapshot: int = 0

    def run(self, steps: int) -> None:
        chance = random.Random(self.seed)
        log, _ = WriteAheadLog.open(self.files, FOLDER)
        for step in range(steps):
            action = chance.random()
            if action < 0.6:
                self._append(log, [b"%d.%d " % (step, n) * chance.randint(1, 60) for n in range(chance.randint(1, 4))])
                if chance.random() < 0.8:
                    log.sync()
                    self.promised = list(self.written)
            elif action < 0.75:
                log.roll()
                self.promised = list(self.written)
            elif action < 0.9 and self.written:
                self._snapshot(log)
            elif log.last_index > max(self.snapshot, log.first_index - 1):
                self._truncate(log, chance.randint(max(self.snapshot, log.first_index - 1), log.last_index))
        log.close()
        self.promised = list(self.written)

    def _append(self, log: WriteAheadLog, payloads: list[bytes]) -> None:
        self.written += payloads
        log.append(payloads)

    def _snapshot(self, log: WriteAheadLog) -> None:
        log.roll()
        self.promised = list(self.written)
        index = log.last_index
        writer = WalSnapshotWriter(self.files, FOLDER, index)
        writer.write(b"|".join(self.written[:index]))
        writer.commit()
        self.snapshot = index
        log.delete_segments_through(index)

    def _truncate(self, log: WriteAheadLog, index: int) -> None:
        self.promised = self.promised[:index]
        log.truncate_after(index)
        if index < len(self.written):
            self.written = self.written[:index]
            self.promised = list(self.written)


def recover(files: SimulatedFileSystem) -> list[bytes]:
    index = find_newest_snapshot(files, FOLDER) or 0
    before = b"".join(read_snapshot(files, FOLDER, index)).split(b"|") if index else []
    log, entries = WriteAheadLog.open(files, FOLDER, after=index)
    remove_older_snapshots(files, FOLDER)
    assert [entry.index for entry in entries] == list(range(index + 1, log.last_index + 1))
    records = before + [bytes(entry.payload) for entry in entries]
    log.close()
    return records


def assert_consistent(records: list[bytes], script: Script) -> None:
    assert records[: len(script.promised)] == script.promised
    assert records == script.written[: len(records)]


@pytest.mark.parametrize("seed", range(4))
def test_power_failure_at_any_event_keeps_synced_records(seed: int) -> None:
    files = SimulatedFileSystem()
    script = Script(files, seed)

    def cut_power(action: str, path: str) -> None:
        """Record the state of the disk if power fails before this event; the event still happens."""
        for fate in range(3):
            disk = files.crash(1000 * files.events + fate)
            records = recover(disk)
            assert_consistent(records, script)
            assert recover(disk.crash(fate)) == records  # recovered data stays durable
        killed = files.kill()
        records = recover(killed)
        assert_consistent(records, script)
        assert recover(killed.crash(files.events)) == records

    files.before_event = cut_power
    script.run(60)
    assert files.events > 150


@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
def test_failed_write_or_sync_makes_log_read_only(error_number: int) -> None:
    rehearsal = Script(SimulatedFileSystem(), 1)
    rehearsal.run(40)
    for event in range(rehearsal.files.events):
        files = SimulatedFileSystem()
        files.fail_at(event, error_number)
        script = Script(files, 1)
        with pytest.raises(StorageError):
            script.run(40)
        assert_consistent(recover(files.crash(event)), script)


def test_failed_log_rejects_appends_and_closes() -> None:
    files = SimulatedFileSystem()
    log, _ = WriteAheadLog.open(files, FOLDER)
    log.append([b"one"])
    log.sync()
    files.fail_at(files.events + 1, errno.EIO)
    log.append([b"two"])
    for _ in range(2):
        with pytest.raises(StorageError):
            log.sync()
    with pytest.raises(StorageError):
        log.append([b"three"])
    log.close()
    assert recover(files.crash(1)) == [b"one"]
