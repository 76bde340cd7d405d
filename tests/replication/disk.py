"""The twin of a disk, on which folders can be renamed with all that is in them: deleted partitions are."""

from __future__ import annotations

from dataclasses import dataclass

from chronik.files.interface import folder_of
from tests.files.twin import TwinFiles
from tests.files.twin_disk import Inode, NameChange


@dataclass(slots=True)
class FolderMove(NameChange):
    """`old_path` and everything below it is now called `path`."""

    def apply(self, names: dict[str, Inode]) -> None:
        assert self.old_path is not None
        for name in [name for name in names if name == self.old_path or name.startswith(self.old_path + "/")]:
            names[self.path + name[len(self.old_path) :]] = names.pop(name)


class TwinDisk(TwinFiles):
    def rename(self, path: str, new_path: str) -> None:
        inode = self._names.get(path)
        if inode is None or inode.content is not None or folder_of(new_path) not in self._names:
            super().rename(path, new_path)
            return
        self.event("rename", path)
        # What is in it keeps its names in one piece: the power cuts between single names are other tests' affair.
        for folder in [name for name in self._pending_names if name == path or name.startswith(path + "/")]:
            for change in self._pending_names.pop(folder):
                change.apply(self._durable_names)
        self._rename_durably_later(path, FolderMove(new_path, inode, path))

    def crash(self, seed: int) -> TwinDisk:
        after = TwinDisk()
        after.__dict__.update(super().crash(seed).__dict__)
        return after
