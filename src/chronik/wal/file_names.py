"""File names `<20 digits><suffix>`, which sort in the order of their indexes."""

from __future__ import annotations

import re

from chronik.files import FileSystem


def indexed_path(directory: str, index: int, suffix: str) -> str:
    return f"{directory}/{index:020d}{suffix}"


def list_indexes(directory: str, suffix: str, files: FileSystem) -> list[int]:
    """Return the sorted indexes in the names of a directory's files; ignore names of another format."""
    pattern = re.compile(rf"([0-9]{{20}}){re.escape(suffix)}")
    matches = (pattern.fullmatch(name) for name in files.list_directory(directory))
    return sorted(int(match[1]) for match in matches if match is not None)
