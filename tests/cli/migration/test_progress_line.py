"""The progress line of `backup`, `restore` and `cluster import`."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import msgspec
import pytest

from chronik.cli.migration.import_runner import ProgressLine
from chronik.escaping import escape_output
from chronik.files import DiskFileSystem
from chronik.metadata.image import Image
from chronik.metadata.snapshot import encode_snapshot
from chronik.migration.backup.backup_source import open_backup
from chronik.migration.backup.manifest import BackupFile, BackupManifest, compute_digest, write_manifest


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_line_is_overwritten_and_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with escape_output():  # as in all commands
        progress = ProgressLine()
        progress.update("orders: 9 of 10")
        progress.update("\x1b[31m")
        progress.update("1")
        progress.close()
    drawn = ["", "orders: 9 of 10", "\\x1b[31m".ljust(15), "1".ljust(8)]
    assert terminal.getvalue() == "\r".join(drawn) + "\n"


def test_progress_line_is_silent_without_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    progress = ProgressLine()
    progress.update("orders: 9 of 10")
    progress.close()
    assert log.getvalue() == ""


def test_open_backup_reports_number_of_verified_files(tmp_path: Path) -> None:
    image = msgspec.msgpack.encode(list(encode_snapshot(Image().freeze())))
    (tmp_path / "image-3.msgpack").write_bytes(image)
    entry = BackupFile("image-3.msgpack", len(image), compute_digest(image))
    write_manifest(DiskFileSystem(tmp_path), BackupManifest(1, "cluster", 3, 0, 99, entry, ()))
    messages: list[str] = []
    open_backup(tmp_path, messages.append).close()
    assert messages == ["checked: 1 of 1 file"]
