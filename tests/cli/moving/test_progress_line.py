"""The progress line of `backup`, `restore` and `cluster import`."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import msgspec
import pytest

from chronik.cli.moving.moves import Progress
from chronik.files import RealFiles
from chronik.metadata.image import Image
from chronik.metadata.snapshot import encode_snapshot
from chronik.moving.backup.folder import open_backup
from chronik.moving.backup.manifest import FileEntry, Manifest, digest_of, write_manifest
from chronik.shown import escaping_output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_line_is_overwritten_and_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with escaping_output():  # as in all commands
        progress = Progress()
        progress.tell("orders: 9 of 10")
        progress.tell("\x1b[31m")
        progress.tell("1")
        progress.end()
    drawn = ["", "orders: 9 of 10", "\\x1b[31m".ljust(15), "1".ljust(8)]
    assert terminal.getvalue() == "\r".join(drawn) + "\n"


def test_progress_line_is_silent_without_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    progress = Progress()
    progress.tell("orders: 9 of 10")
    progress.end()
    assert log.getvalue() == ""


def test_open_backup_reports_number_of_verified_files(tmp_path: Path) -> None:
    image = msgspec.msgpack.encode(list(encode_snapshot(Image().freeze())))
    (tmp_path / "image-3.msgpack").write_bytes(image)
    entry = FileEntry("image-3.msgpack", len(image), digest_of(image))
    write_manifest(RealFiles(tmp_path), Manifest(1, "cluster", 3, 0, 99, entry, ()))
    messages: list[str] = []
    open_backup(tmp_path, messages.append).close()
    assert messages == ["checked: 1 of 1 file"]
