"""Removal of partition directories that this node no longer hosts, once no sync uses them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from chronik.broker.quarantine import DELETED_DIRECTORY, TOPICS_DIRECTORY, Quarantine
from chronik.broker.replica import Replica
from chronik.broker.thread_work import run_in_thread
from chronik.files import FileCache
from chronik.ids import format_id


class _Removal(NamedTuple):
    """The pending removal of a topic's directory, or of one partition's directory."""

    topic_id: bytes
    partition: int | None
    abandoned: list[Replica]


class PartitionRemovals:
    """The removal of directories of deleted topics and of partitions that moved to other nodes."""

    def __init__(self, cache: FileCache, set_aside: Quarantine, on_left: Callable[[bytes], None]) -> None:
        """Create the removals. `on_left` is called with the topic id after a partition has left `leaving`."""
        self._cache = cache
        self._set_aside = set_aside
        self._on_left = on_left
        self._pending: deque[_Removal] = deque()
        self._due = asyncio.Event()
        self.pending_partitions: set[tuple[bytes, int]] = set()
        """Partitions whose files are still being closed and which cannot be created again until then. A deleted topic
        may return too: an aborted import that is started again uses the same topic ids."""

    def add(self, topic_id: bytes, partition: int | None, abandoned: list[Replica]) -> None:
        """Schedule the removal of a topic's or a partition's directory."""
        if partition is not None:
            self.pending_partitions.add((topic_id, partition))
        self.pending_partitions.update((topic_id, replica.index) for replica in abandoned)
        self._pending.append(_Removal(topic_id, partition, abandoned))
        self._due.set()

    def check_for_deleted(self) -> None:
        """Schedule the deletion of directories that were moved to the `deleted` directory."""
        if self._cache.files.list_directory(DELETED_DIRECTORY):
            self._due.set()

    async def run(self) -> None:
        """Move and delete directories, once no sync uses them."""
        while True:
            await self._due.wait()
            self._due.clear()
            while self._pending:
                for replica in self._pending[0].abandoned:
                    await replica.release()
                self._move_to_deleted(self._pending.popleft())
            await run_in_thread(self._set_aside.delete_removed)

    def close(self) -> None:
        """Move the remaining directories, so that the next start deletes them. No sync may be in progress."""
        while self._pending:
            self._move_to_deleted(self._pending.popleft())

    def _move_to_deleted(self, removal: _Removal) -> None:
        topic_id, partition, abandoned = removal
        directory = format_id(topic_id) if partition is None else f"{format_id(topic_id)}/{partition}"
        self._cache.close_directory(f"{TOPICS_DIRECTORY}/{directory}")
        self._set_aside.move_directory(directory, DELETED_DIRECTORY)
        self.pending_partitions.difference_update((topic_id, replica.index) for replica in abandoned)
        if partition is not None:
            self.pending_partitions.discard((topic_id, partition))
        self._on_left(topic_id)
