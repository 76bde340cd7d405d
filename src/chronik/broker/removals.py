"""Files of partitions that this node has no longer: out of the way once nobody writes to them, and then removed."""

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
    """Files of a topic, or those of one partition that has moved away."""

    topic_id: bytes
    partition: int | None
    abandoned: list[Replica]


class Removals:
    def __init__(self, cache: FileCache, set_aside: SetAside, on_left: Callable[[bytes], None]) -> None:
        """`on_left` hears the id of a topic of which a partition was `leaving` until now."""
        self._cache = cache
        self._set_aside = set_aside
        self._on_left = on_left
        self._waiting: deque[_Removal] = deque()
        self._due = asyncio.Event()
        self.leaving: set[tuple[bytes, int]] = set()
        """Partitions whose files are still being closed: until then they cannot come here again. Those of a deleted
        topic can, too: an import that was given up and is begun once more brings the same ids."""

    def add(self, topic_id: bytes, partition: int | None, abandoned: list[Replica]) -> None:
        if partition is not None:
            self.leaving.add((topic_id, partition))
        self.leaving.update((topic_id, replica.index) for replica in abandoned)
        self._waiting.append(_Removal(topic_id, partition, abandoned))
        self._due.set()

    def look_for_deleted(self) -> None:
        if self._cache.files.list_folder(DELETED_FOLDER):
            self._due.set()

    async def keep_removing(self) -> None:
        """Removes the folders of deleted topics, once no sync is under way in them."""
        while True:
            await self._due.wait()
            self._due.clear()
            while self._waiting:
                for replica in self._waiting[0].abandoned:
                    await replica.release()
                self._take_away(self._waiting.popleft())
            await run_to_its_end(self._set_aside.remove_deleted)

    def close(self) -> None:
        """When no sync is under way any more. Without this the next start would not know that they were deleted."""
        while self._waiting:
            self._take_away(self._waiting.popleft())

    def _take_away(self, removal: _Removal) -> None:
        topic_id, partition, abandoned = removal
        folder = format_id(topic_id) if partition is None else f"{format_id(topic_id)}/{partition}"
        self._cache.forget_folder(f"{TOPICS_FOLDER}/{folder}")
        self._set_aside.put(folder, DELETED_FOLDER)
        self.leaving.difference_update((topic_id, replica.index) for replica in abandoned)
        if partition is not None:
            self.leaving.discard((topic_id, partition))
        self._on_left(topic_id)
