"""The files and names on a simulated disk, and what a power failure leaves of them. See `simulated_files`."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

SECTOR = 512  # the atomic write unit of disks


@dataclass(slots=True)
class ContentChange:
    """A write of `data` at `position`, a truncation to `position` without data, or a preallocation."""

    position: int
    data: bytes | None
    is_reservation: bool = False

    def apply(self, content: bytearray) -> None:
        if self.is_reservation:
            _resize(content, max(self.position, len(content)))
        elif self.data is None:
            _resize(content, self.position)
        else:
            _overwrite(content, self.position, self.data)


@dataclass(slots=True, eq=False)
class Inode:
    """The contents of a file (None for a directory), independent of its name."""

    content: bytearray | None
    synced: bytearray = field(default_factory=bytearray)
    pending: list[ContentChange] = field(default_factory=list)
    modified_ms: int = 0

    def __deepcopy__(self, memo: object) -> Inode:
        content = None if self.content is None else bytearray(self.content)
        return Inode(content, bytearray(self.synced), list(self.pending), self.modified_ms)  # no change ever changes

    def change(self, change: ContentChange) -> None:
        assert self.content is not None
        change.apply(self.content)
        self.pending.append(change)

    def sync(self) -> None:
        pending, self.pending = self.pending, []
        for change in pending:
            change.apply(self.synced)

    def drop_pending(self) -> None:
        """Simulate a failed fsync: the pages count as clean although they never reached the disk."""
        self.pending = []

    def after_power_failure(self, chance: random.Random) -> Inode:
        content = bytearray(self.synced)
        if self.pending:
            _apply_some(content, self.pending, chance)
        return Inode(content if self.content is not None else None, bytearray(content))


@dataclass(slots=True)
class NameChange:
    """A change of the inode that `path` refers to, or its removal; a rename also removes the old name atomically."""

    path: str
    inode: Inode | None
    old_path: str | None = None

    def apply(self, names: dict[str, Inode]) -> None:
        if self.old_path is not None:
            names.pop(self.old_path, None)
        if self.inode is not None:
            names[self.path] = self.inode
        else:
            names.pop(self.path, None)


def choose_surviving_changes(changes: list[NameChange], chance: random.Random) -> list[NameChange]:
    """Return any subset in order, because names may reach the disk in any order."""
    if chance.random() < 0.25:
        return changes
    return [change for change in changes if chance.random() < 0.5]


def _apply_some(content: bytearray, pending: list[ContentChange], chance: random.Random) -> None:
    kind = chance.randrange(4)
    if kind == 0:  # no changes
        return
    if kind == 1:  # all changes
        for change in pending:
            change.apply(content)
    elif kind == 2:  # the first changes, the last one torn
        kept = chance.randint(0, len(pending))
        for change in pending[:kept]:
            change.apply(content)
        if kept < len(pending):
            torn = pending[kept].data
            if torn:
                _overwrite(content, pending[kept].position, torn[: chance.randrange(len(torn))])
    else:
        for change in pending:
            _apply_sectors(content, change, chance)


def _apply_sectors(content: bytearray, change: ContentChange, chance: random.Random) -> None:
    if change.data is None:
        if chance.random() < 0.5:
            change.apply(content)
        return
    start, end = change.position, change.position + len(change.data)
    position = start
    while position < end:
        stop = min(end, position - position % SECTOR + SECTOR)
        if chance.random() < 0.5:
            _overwrite(content, position, change.data[position - start : stop - start])
        position = stop
    if chance.random() < 0.5 and len(content) < end:  # the new length became durable before the data: zeros
        _resize(content, end)


def _overwrite(content: bytearray, position: int, data: bytes) -> None:
    if len(content) < position:
        _resize(content, position)
    content[position : position + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
