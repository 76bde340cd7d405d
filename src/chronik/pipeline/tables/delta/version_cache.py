"""The last version of a table that this process has loaded, which is reused while it is the current version.

Opening a table reads its log from the last checkpoint on. A driver that lands a thousand topics opens each of them
several times per round, mostly to find no commits of other writers. Instead, it checks two things: whether the log
entry of the loaded version is still the same file, as otherwise the table was deleted and created again, and whether
there is a later entry. A commit onto an outdated version fails in any case, because its log entry exists already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from chronik.pipeline.tables.delta.transaction_log import build_entry_path, check_log_entries
from chronik.pipeline.tables.storage import TableStorage, local_directory

Stamp = tuple[int, int, int]
"""The inode (0 in an object store), size and modification time of a log entry."""


class VersionCache:
    """A cache of one table's last loaded version. Not thread-safe."""

    def __init__(self, uri: str, open_table: Callable[[], DeltaTable]) -> None:
        self._uri = uri
        self._directory = local_directory(uri)
        self._open_table = open_table
        self._table: DeltaTable | None = None
        self._version = -1
        self._stamp: Stamp | None = None
        self._options: Mapping[str, str] | None = None
        self._next_offsets: dict[int, int] | None = None
        self._is_synced = False

    def open(self, storage: TableStorage, options: Mapping[str, str]) -> DeltaTable:
        """Return the current version. After an error in an operation on it, the caller calls `drop`.

        Raises the errors of opening a table.
        """
        table = self._table
        if table is None or table.version() != self._version or options != self._options:
            return self._load(storage, options)
        if self._stamp is None or self._read_stamp(storage, self._version) != self._stamp:
            return self._load(storage, options)
        if self._directory is not None and not (self._directory / build_entry_path(self._version + 1)).exists():
            return table
        check_log_entries(self._uri)
        try:
            table.update_incremental()
        except DeltaError:
            return self._load(storage, options)  # the entries in between were cleaned up
        if table.version() != self._version:
            self._set(table, storage)
        return table

    def _load(self, storage: TableStorage, options: Mapping[str, str]) -> DeltaTable:
        self.drop()
        table = self._open_table()
        self._options = options
        self._set(table, storage)
        return table

    def _set(self, table: DeltaTable, storage: TableStorage) -> None:
        self._table, self._version = table, int(table.version())
        self._stamp = self._read_stamp(storage, self._version)
        self._next_offsets, self._is_synced = None, False

    def store_commit(self, table: DeltaTable, storage: TableStorage) -> None:
        """Store the version that this process has just committed and synced, if the table has loaded it."""
        version = int(table.version())
        if table is self._table and version == self._version + 1:
            self._set(table, storage)
            self._is_synced = True
        elif table is not self._table or version != self._version:
            self.drop()

    def drop(self) -> None:
        """Load the table again when it is opened, for example after a failed commit."""
        self._table = self._stamp = self._next_offsets = None
        self._version, self._is_synced = -1, False

    def is_synced(self, table: DeltaTable) -> bool:
        """Return whether this process has synced the log entry of a table's version."""
        return self._is_synced and self._is_loaded(table)

    def get_next_offsets(self, table: DeltaTable) -> dict[int, int] | None:
        """Return the next offsets of a table's version, or None if they are not known."""
        return self._next_offsets if self._is_loaded(table) else None

    def set_next_offsets(self, table: DeltaTable, next_offsets: Mapping[int, int]) -> None:
        if self._is_loaded(table):
            self._next_offsets = dict(next_offsets)

    def _is_loaded(self, table: DeltaTable) -> bool:
        current = self._table
        return current is not None and current is table and int(current.version()) == self._version

    def _read_stamp(self, storage: TableStorage, version: int) -> Stamp | None:
        """Return the stamp of a version's log entry, or None if there is none or it is unknown."""
        if self._directory is not None:
            try:
                entry = (self._directory / build_entry_path(version)).stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
            return entry.st_ino, entry.st_size, entry.st_mtime_ns
        info = storage.filesystem.get_file_info(storage.full_path(build_entry_path(version)))
        if info.type is not fs.FileType.File or info.mtime_ns is None:
            return None
        return 0, int(info.size), int(info.mtime_ns)
