"""An overlay keeps all changes in memory: the directory's contents, names and timestamps do not change."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronik.errors import DataDirectoryInUse
from chronik.files import DiskFileSystem, read_file, remove_tree, write_atomically
from chronik.files.overlay import OverlayFileSystem


def snapshot_directory(directory: Path) -> dict[str, tuple[int, bytes | None]]:
    """Return the modification time and contents of everything in a directory."""
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in sorted([directory, *directory.rglob("*")])
    }


def test_overlay_keeps_all_changes_in_memory(tmp_path: Path) -> None:
    for name in ("a/cut", "a/written", "a/renamed", "a/removed", "b/gone"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"0123456789")
    before = snapshot_directory(tmp_path)
    files = OverlayFileSystem(tmp_path)
    cut = files.open("a/cut")
    cut.truncate(4)
    assert (cut.pread(100, 1), files.size("a/cut")) == (b"123", 4)
    written = files.create("a/written")
    written.pwrite(b"XY", 9)
    assert read_file(files, "a/written") == b"012345678XY"
    files.rename("a/renamed", "a/new name")
    files.remove("a/removed")
    remove_tree(files, "b")
    write_atomically(files, "a/whole", b"whole")
    files.make_directory("c/d")
    for each in (cut, written):
        each.fdatasync()
        each.close()
    assert files.list_directory("a") == ["cut", "new name", "whole", "written"]
    assert files.list_directory("") == ["a", "c"]
    assert read_file(files, "a/new name") == b"0123456789"
    assert read_file(files, "a/renamed") is None
    assert snapshot_directory(tmp_path) == before


def test_overlay_file_extended_after_truncation_has_zeros(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    file = OverlayFileSystem(tmp_path).open("a")
    file.truncate(2)
    assert file.append(b"x") == 2
    file.truncate(5)
    assert file.pread(100, 0) == b"01x\x00\x00"
    file.close()


def test_overlay_lock_is_exclusive_and_creates_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OverlayFileSystem(tmp_path).lock(".lock")
    assert list(tmp_path.iterdir()) == []
    held = DiskFileSystem(tmp_path).lock(".lock")
    with pytest.raises(DataDirectoryInUse):
        OverlayFileSystem(tmp_path).lock(".lock")
    held.close()
    OverlayFileSystem(tmp_path).lock(".lock").close()
