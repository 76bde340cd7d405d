"""Removal of partition directories that this node no longer hosts, once no sync uses them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from chronik.broker.replica import Replica
from chronik.broker.set_aside import DELETED_FOLDER, TOPICS_FOLDER, SetAside
from chronik.broker.threads import run_to_its_end
from chronik.files import FileCache
from chronik.ids import format_id


class _Removal(NamedTuple):
    """The pending removal of a topic's directory, or of one partition's directory."""

    topic_id: bytes
    partition: int | None
    abandoned: list[Replica]


class Removals:
    """The removal of directories of deleted topics and of partitions that moved to other nodes."""

    def __init__(self, cache: FileCache, set_aside: SetAside, on_left: Callable[[bytes], None]) -> None:
        """Create the removals. `on_left` is called with the topic id after a partition has left `leaving`."""
        self._cache = cache
        self._set_aside = set_aside
        self._on_left = on_left
        self._pending: deque[_Removal] = deque()
        self._due = asyncio.Event()
        self.leaving: set[tuple[bytes, int]] = set()
        """Partitions whose files are still being closed and which cannot be created again until then. A deleted topic
        may return too: an aborted import that is started again uses the same topic ids."""

    def add(self, topic_id: bytes, partition: int | None, abandoned: list[Replica]) -> None:
        """Schedule the removal of a topic's or a partition's directory."""
        if partition is not None:
            self.leaving.add((topic_id, partition))
        self.leaving.update((topic_id, replica.index) for replica in abandoned)
        self._pending.append(_Removal(topic_id, partition, abandoned))
        self._due.set()

    def look_for_deleted(self) -> None:
        """Schedule the deletion of directories that were moved to the `deleted` directory."""
        if self._cache.files.list_folder(DELETED_FOLDER):
            self._due.set()

    async def keep_removing(self) -> None:
        """Move and delete directories, once no sync uses them."""
        while True:
            await self._due.wait()
            self._due.clear()
            while self._pending:
                for replica in self._pending[0].abandoned:
                    await replica.release()
                self._move_to_deleted(self._pending.popleft())
            await run_to_its_end(self._set_aside.remove_deleted)

    def close(self) -> None:
        """Move the remaining directories, so that the next start deletes them. No sync may be in progress."""
        while self._pending:
            self._move_to_deleted(self._pending.popleft())

    def _move_to_deleted(self, removal: _Removal) -> None:
        topic_id, partition, abandoned = removal
        directory = format_id(topic_id) if partition is None else f"{format_id(topic_id)}/{partition}"
        self._cache.forget_folder(f"{TOPICS_FOLDER}/{directory}")
        self._set_aside.put(directory, DELETED_FOLDER)
        self.leaving.difference_update((topic_id, replica.index) for replica in abandoned)
        if partition is not None:
            self.leaving.discard((topic_id, partition))
        self._on_left(topic_id)
