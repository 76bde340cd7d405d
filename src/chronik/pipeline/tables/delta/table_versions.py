"""Earlier versions of a Delta table: which there are, which was current at a time, and which still have their files.

The log of a table loses entries when its log retention has passed, and its earlier versions lose data files in a
vacuum. The time of a version is that in its log entry, since modification times of files change when a table is copied.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyarrow import fs

from chronik.pipeline.tables.as_of import AsOf, AsOfVersion, format_time
from chronik.pipeline.tables.delta.transaction_log import LOG_DIRECTORY
from chronik.pipeline.tables.storage import TableStorage
from chronik.pipeline.tables.topic_table import VersionUnavailableError

_LOG_FILE = re.compile(r"(?P<version>\d{20})\.(?:json|(?P<checkpoint>checkpoint\..*parquet))")


@dataclass(frozen=True, slots=True)
class LogVersions:
    """The versions whose log entries or checkpoints exist, in ascending order."""

    entries: tuple[int, ...]
    checkpoints: tuple[int, ...]

    @property
    def oldest(self) -> int:
        """The oldest version that can be restored: the first one, or else that of the oldest checkpoint."""
        if 0 in self.entries[:1] or not self.checkpoints:
            return 0
        return self.checkpoints[0]


def find_version(uri: str, storage: TableStorage, as_of: AsOf, current: int) -> int:
    """Return the number of the version as of a point in time. `current` is that of the current version.

    Raises:
        VersionUnavailableError: There is none.
    """
    found = list_log_versions(storage)
    if isinstance(as_of, AsOfVersion):
        return _check_version(uri, as_of.version, found.oldest, current)
    if as_of.time > datetime.now(UTC):
        raise VersionUnavailableError(f"{uri}: {format_time(as_of.time)} is in the future")
    entries = [each for each in found.entries if found.oldest <= each <= current]
    position = bisect_right(entries, as_of.time, key=lambda version: _read_commit_time(storage, version))
    if position == 0:
        oldest = entries[0] if entries else current
        reason = "" if oldest == 0 else "; earlier ones were removed from the table's log"
        raise VersionUnavailableError(
            f"{uri}: no version as of {format_time(as_of.time)}: the oldest is version {oldest} of"
            f" {format_time(_read_commit_time(storage, oldest))}{reason}"
        )
    return entries[position - 1]


def _check_version(uri: str, version: int, oldest: int, current: int) -> int:
    if version > current:
        raise VersionUnavailableError(f"{uri}: no version {version}: the current version is {current}")
    if version < oldest:
        raise VersionUnavailableError(
            f"{uri}: version {version} was removed from the table's log: the oldest version is {oldest}"
        )
    return version


def list_log_versions(storage: TableStorage) -> LogVersions:
    """List the log entries and checkpoints of a table."""
    selector = fs.FileSelector(storage.full_path(LOG_DIRECTORY), allow_not_found=True)
    names = [info.base_name for info in storage.filesystem.get_file_info(selector)]
    matches = [match for name in names if (match := _LOG_FILE.fullmatch(name))]
    entries = {int(match["version"]) for match in matches if match["checkpoint"] is None}
    checkpoints = {int(match["version"]) for match in matches if match["checkpoint"] is not None}
    return LogVersions(tuple(sorted(entries)), tuple(sorted(checkpoints)))


def _read_commit_time(storage: TableStorage, version: int) -> datetime:
    """Return the time of a version: that in its log entry, or else the entry's modification time."""
    path = f"{LOG_DIRECTORY}/{version:020}.json"
    with storage.filesystem.open_input_file(storage.full_path(path)) as file:
        milliseconds = _extract_commit_time(file.read().splitlines())
    if milliseconds is None:
        milliseconds = int(storage.get_modification_times([path])[path] * 1000)
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _extract_commit_time(lines: Iterable[bytes]) -> int | None:
    for line in lines:
        action: dict[str, Any] = json.loads(line) if line.strip() else {}
        if "commitInfo" in action:
            found = action["commitInfo"].get("inCommitTimestamp", action["commitInfo"].get("timestamp"))
            return None if found is None else int(found)
    return None


def check_data_files(
    uri: str, storage: TableStorage, version: int, current: int, list_paths: Callable[[int], Sequence[str]]
) -> None:
    """Check that the data files of an earlier version exist. Files of the current version are not examined.

    Raises:
        VersionUnavailableError: A vacuum has deleted files. The message names the oldest version that has all files.
    """
    live = set(list_paths(current))

    def is_complete(other: int) -> bool:
        removed = [path for path in list_paths(other) if path not in live]
        return len(storage.get_modification_times(removed)) == len(removed)

    if version == current or is_complete(version):
        return
    # A vacuum deletes the files that were removed first, so the versions after a complete one are complete.
    lost, complete = version, current
    while complete - lost > 1:
        middle = (lost + complete) // 2
        lost, complete = (lost, middle) if is_complete(middle) else (middle, complete)
    raise VersionUnavailableError(
        f"{uri}: a vacuum has deleted files of version {version}: the oldest version that can be read is {complete}"
    )
