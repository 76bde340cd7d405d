"""The file of a node's history in its data directory.

It is replaced without a sync to disk: after a power failure, it may be damaged, and the history starts empty.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from chronik.errors import ChronikError
from chronik.files import FileSystem, read_file
from chronik.history.snapshot import (
    SNAPSHOT_BYTES_MAX,
    HistorySnapshot,
    InvalidHistorySnapshot,
    encode_snapshot,
    restore_snapshot,
)
from chronik.history.store import HistoryStore
from chronik.node.data_directory import HISTORY_FILE

logger = logging.getLogger("chronik.node")


class HistoryFile:
    """The file in which a node stores its history. The methods block, and may be called by several threads."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._lock: Final = threading.Lock()
        self._is_failing = False

    def load(self) -> HistoryStore:
        """Return the stored history, or an empty one if there is no file, or it cannot be used."""
        store = HistoryStore()
        try:
            if self._files.exists(HISTORY_FILE) and self._files.size(HISTORY_FILE) > SNAPSHOT_BYTES_MAX:
                raise InvalidHistorySnapshot("it is too large")
            data = read_file(self._files, HISTORY_FILE)
            if data is not None:
                restore_snapshot(store, data)
        except (OSError, ChronikError) as error:
            logger.warning("history: reading the file failed: %s; starting with an empty history", error)
        return store

    def save(self, snapshot: HistorySnapshot) -> None:
        """Replace the file. A failure is logged once until it succeeds again: the history is not worth a stop."""
        temporary = f"{HISTORY_FILE}.tmp"
        with self._lock:
            try:
                self._files.remove(temporary)
                file = self._files.create(temporary)
                try:
                    file.append(encode_snapshot(snapshot))
                finally:
                    file.close()
                self._files.rename(temporary, HISTORY_FILE)
            except (OSError, ChronikError) as error:
                if not self._is_failing:
                    logger.warning("history: writing the file failed: %s; a restart will lose the latest part", error)
                self._is_failing = True
            else:
                self._is_failing = False
