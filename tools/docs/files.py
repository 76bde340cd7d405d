"""Writes generated files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_changed_files(files: Mapping[Path, str], root: Path) -> None:
    """Write the files whose text has changed. Paths are relative to `root`."""
    for path, text in files.items():
        target = root / path
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            print(f"written: {path}")
