from __future__ import annotations

from chronik.wal.log import WriteAheadLog
from chronik.wal.snapshots import WalSnapshotWriter, find_newest_snapshot, remove_older_snapshots
from tests.files.simulated_files import SimulatedFileSystem

FOLDER = "log"
UNRELATED_FILES = [
    "log/00000000000000000001 (copy).wal",
    "log/7.snapshot",
    "log/backup.snapshot",
    "log/notes.wal",
    "log/readme",
]


def test_unrelated_files_in_log_directory_are_ignored() -> None:
    files = SimulatedFileSystem()
    files.make_directory(FOLDER)
    for path in UNRELATED_FILES:
        files.create(path).close()
    log, entries = WriteAheadLog.open(files, FOLDER)
    assert entries == []
    log.append([b"one"])
    log.sync()
    writer = WalSnapshotWriter(files, FOLDER, 1)
    writer.write(b"everything")
    writer.commit()
    remove_older_snapshots(files, FOLDER)
    log.close()
    assert find_newest_snapshot(files, FOLDER) == 1
    log, entries = WriteAheadLog.open(files, FOLDER, after=0)
    assert [bytes(entry.payload) for entry in entries] == [b"one"]
    log.close()
    assert [path for path in files.paths() if path in UNRELATED_FILES] == UNRELATED_FILES
