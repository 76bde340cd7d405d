"""A simulated disk that supports renaming directories with their contents, as for deleted partitions."""

from __future__ import annotations

from dataclasses import dataclass

from chronik.files.interface import parent_directory
from tests.files.simulated_files import SimulatedFileSystem
from tests.files.simulated_storage import Inode, NameChange


@dataclass(slots=True)
class FolderMove(NameChange):
    """A rename of a directory and everything below it."""

    def apply(self, names: dict[str, Inode]) -> None:
        assert self.old_path is not None
        for name in [name for name in names if name == self.old_path or name.startswith(self.old_path + "/")]:
            names[self.path + name[len(self.old_path) :]] = names.pop(name)


class TwinDisk(SimulatedFileSystem):
    """A simulated disk with directory renames."""

    def rename(self, path: str, new_path: str) -> None:
        inode = self._names.get(path)
        if inode is None or inode.content is not None or parent_directory(new_path) not in self._names:
            super().rename(path, new_path)
            return
        self.count_event("rename", path)
        # The contents move in one step; power failures between single names are covered by other tests.
        for folder in [name for name in self._pending_names if name == path or name.startswith(path + "/")]:
            for change in self._pending_names.pop(folder):
                change.apply(self._durable_names)
        self._rename_durably_later(path, FolderMove(new_path, inode, path))

    def crash(self, seed: int) -> TwinDisk:
        after = TwinDisk()
        after.__dict__.update(super().crash(seed).__dict__)
        return after
